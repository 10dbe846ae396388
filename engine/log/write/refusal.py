"""Refusal of appends: while the disk has no room, and after the log was closed."""

from engine.log.write.native import Appender


class Refusal:
    """Whether messages may be appended. Control records may be appended until the log is closed."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._is_closed = False
        self.sentence = ""
        """Reason with which appends of messages are refused at present; empty when they are accepted."""

    def refuse(self, sentence: str) -> None:
        """Answer appends of messages with DiskFullError and this sentence from now on; accept them when it is empty."""
        self.sentence = sentence
        self._appender.set_refusal(sentence, self._is_closed)

    def close(self) -> bool:
        """Answer every append with ClosedError from now on. Returns False when that was so already."""
        was_open, self._is_closed = not self._is_closed, True
        self._appender.set_refusal(self.sentence, True)
        return was_open
