"""The end of a log that follows another one. Here `LogApply` takes all bytes; the native form takes batches of messages."""

from engine.log.write.append import Appender


class LogTail:
    """The appender's end, for bytes of a master.

    Attributes:
        is_ready: whether batches may be taken here; `LogApply` says so.
        newest_ms: the time that the last applied batch is stamped with.
    """

    def __init__(self, log_id: bytes, appender: Appender) -> None:
        self.is_ready = False
        self.newest_ms = 0

    def take(self, position: int, data: bytes) -> bool:
        """As `LogApply.apply`. Returns whether the bytes are in the log; otherwise nothing has changed."""
        return False
