"""Selects the native or the reference form of the reader of deliveries."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("pipeline.reply", "_deliveries")
if NATIVE and not TYPE_CHECKING:
    from pipeline.reply._deliveries import read_deliveries
else:
    from pipeline.reply.deliveries import read_deliveries

__all__ = ["NATIVE", "read_deliveries"]
