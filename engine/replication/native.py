"""Selected forms of replication's hot parts: what a slave does per frame."""

from typing import TYPE_CHECKING

from common.twins import use_native
from engine.log.write.native import NATIVE as _WRITER_IS_NATIVE

NATIVE = use_native("engine.replication", "_following", requires=_WRITER_IS_NATIVE)
if NATIVE and not TYPE_CHECKING:
    from engine.replication._following import Following
else:
    from engine.replication.following import Following

__all__ = ["NATIVE", "Following"]
