"""Selects the native or the reference form of outgoing batches."""

from typing import TYPE_CHECKING

from common.kafka.native import NATIVE as KAFKA_NATIVE
from common.twins import use_native

NATIVE = use_native("kafka_bridge", "_batch", requires=KAFKA_NATIVE)
if NATIVE and not TYPE_CHECKING:
    from kafka_bridge._batch import OutgoingBatch
else:
    from kafka_bridge.batch import OutgoingBatch

__all__ = ["NATIVE", "OutgoingBatch"]
