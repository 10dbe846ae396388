"""Selected forms of replication's hot parts: what a slave does per frame, and a master per frame and per STORED."""

from typing import TYPE_CHECKING

from common.twins import use_native
from engine.log.write.native import NATIVE as _WRITER_IS_NATIVE

NATIVE = use_native(
    "engine.replication", "_following", "_confirmation", "_shipment", requires=_WRITER_IS_NATIVE
)  # fmt: skip
if NATIVE and not TYPE_CHECKING:
    from engine.replication._confirmation import Confirmation
    from engine.replication._following import Following
    from engine.replication._shipment import Shipment
else:
    from engine.replication.confirmation import Confirmation
    from engine.replication.following import Following
    from engine.replication.shipment import Shipment

__all__ = ["NATIVE", "Confirmation", "Following", "Shipment"]
