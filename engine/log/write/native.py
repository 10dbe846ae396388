"""Selected forms of the writer's hot parts: the appender, and the end of a log that follows another one."""

from typing import TYPE_CHECKING

from common.twins import use_native
from engine.log.segment.native import NATIVE as _SEGMENT_IS_NATIVE

NATIVE = use_native("engine.log.write", "_append", "_known_queues", "_tail", requires=_SEGMENT_IS_NATIVE)
if NATIVE and not TYPE_CHECKING:
    from engine.log.write._append import Appender
    from engine.log.write._tail import LogTail
else:
    from engine.log.write.append import Appender
    from engine.log.write.tail import LogTail

__all__ = ["NATIVE", "Appender", "LogTail"]
