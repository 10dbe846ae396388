"""Selects the native or the reference form of decoding fetched record batches."""

from typing import TYPE_CHECKING

from common.kafka.decoding import AbortedTransaction, FetchedColumns, MalformedBatch
from common.twins import use_native

NATIVE = use_native("common.kafka", "_decoding", "_fetched")
if NATIVE and not TYPE_CHECKING:
    from common.kafka._decoding import BatchDecoder
else:
    from common.kafka.decoding import BatchDecoder

__all__ = ["NATIVE", "AbortedTransaction", "BatchDecoder", "FetchedColumns", "MalformedBatch"]
