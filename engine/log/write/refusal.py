"""Refusal of appends: without room on the disk, while another broker's log is followed, and after the log was closed."""

from engine.errors import ClosedError, DiskFullError, NotMasterError
from engine.log.write.native import Appender

CLOSED = "the log is closed"


class Refusal:
    """Whether this broker may append.

    While the disk has no room, control records may be appended. While another broker's log is followed, and after
    close(), nothing may: everything that a broker appends on its own account passes here.
    """

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._is_closed = False
        self._following = self._handing_over = ""
        self.sentence = ""
        """Reason with which appends of messages are refused for want of room; empty when they are accepted."""

    def refuse(self, sentence: str) -> None:
        """Answer appends of messages with DiskFullError and this sentence from now on; accept them when it is empty."""
        self.sentence = sentence
        self._apply()

    def follow(self, sentence: str) -> None:
        """Answer every append with NotMasterError and this sentence from now on; empty: this broker leads.

        What is staged has to be written before.
        """
        self._following = sentence
        self._apply()

    def hand_over(self, sentence: str) -> None:
        """Answer every append with NotMasterError and this sentence while this broker still leads; empty: go on."""
        self._handing_over = sentence
        self._apply()

    @property
    def following(self) -> str:
        """The sentence of follow(); empty when this broker leads."""
        return self._following

    def check(self) -> None:
        """Raise what an append of a control record would: before a change in memory that one belongs to."""
        if self._is_closed:
            raise ClosedError(CLOSED)
        if sentence := self._following or self._handing_over:
            raise NotMasterError(sentence)

    def close(self) -> bool:
        """Answer every append with ClosedError from now on. Returns False when that was so already."""
        was_open, self._is_closed = not self._is_closed, True
        self._apply()
        return was_open

    def _apply(self) -> None:
        if self._is_closed:
            self._appender.set_refusal(CLOSED, ClosedError, True)
        elif sentence := self._following or self._handing_over:
            self._appender.set_refusal(sentence, NotMasterError, True)
        else:
            self._appender.set_refusal(self.sentence, DiskFullError, False)
