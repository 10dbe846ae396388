"""Selects the native or the reference form of fetched record batches and of pending ones."""

from typing import TYPE_CHECKING

from common.kafka.decoding import AbortedTransaction, FetchedColumns, MalformedBatch
from common.twins import use_native

NATIVE = use_native("common.kafka", "_decoding", "_fetched", "_request_records", "_pending_batch")
if NATIVE and not TYPE_CHECKING:
    from common.kafka._decoding import BatchDecoder
    from common.kafka._pending_batch import PendingBatch, payload_bytes, send_each
else:
    from common.kafka.decoding import BatchDecoder
    from common.kafka.pending_batch import PendingBatch, payload_bytes, send_each

__all__ = [
    "NATIVE", "AbortedTransaction", "BatchDecoder", "FetchedColumns", "MalformedBatch", "PendingBatch", "payload_bytes",
    "send_each",
]  # fmt: skip
