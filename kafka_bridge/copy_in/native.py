"""Selects the native or the reference form of packing copied records."""

from typing import TYPE_CHECKING

from common.twins import use_native
from kafka_bridge.copy_in.packing import PackedRecords, PackTarget

NATIVE = use_native("kafka_bridge.copy_in", "_packing", "_plain_record")
if NATIVE and not TYPE_CHECKING:
    from kafka_bridge.copy_in._packing import pack
else:
    from kafka_bridge.copy_in.packing import pack

__all__ = ["NATIVE", "PackTarget", "PackedRecords", "pack"]
