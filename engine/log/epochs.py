"""Epochs of a log: which master wrote which part, and how far two logs are the same. Design: docs/design/0030-replication.md.

An epoch has one master, which only appends, and a slave takes bytes only at its end after the same history. So two logs
that both have epoch e, from the same position on, are equal up to the end of e in the shorter one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from common.cluster.group_record import LogPoint
from engine.errors import EpochOrderError


class EpochStart(NamedTuple):
    """The record of an epoch: batches from the position `start` on are of its master."""

    epoch: int
    start: int


BEFORE_EPOCHS = EpochStart(0, 0)
"""The part that a lone engine wrote before its group had a record. Every log begins with it."""


class EpochHistory:
    """The epochs of one log, oldest first.

    Args:
        starts: as its records name them.
    """

    def __init__(self, starts: Sequence[EpochStart] = ()) -> None:
        self._starts = [BEFORE_EPOCHS]
        for each in starts:
            self.begin(*each)

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        """As FOLLOW carries them: without the part before the first epoch."""
        return tuple(self._starts[1:])

    def begin(self, epoch: int, start: int) -> None:
        """Note the next epoch. Raises EpochOrderError, and changes nothing then."""
        last = self._starts[-1]
        if epoch <= last.epoch or start < last.start:
            raise EpochOrderError(f"epoch {epoch} from {start} on: the log has epoch {last.epoch} from {last.start} on")
        self._starts.append(EpochStart(epoch, start))

    def point(self, position: int) -> LogPoint:
        """The position with the epoch of what lies below it."""
        return LogPoint(next((each.epoch for each in reversed(self._starts) if each.start < position), 0), position)

    def cut(self, end: int) -> None:
        """The log ends at `end` from now on."""
        while len(self._starts) > 1 and self._starts[-1].start >= end:
            self._starts.pop()

    def end_of(self, number: int, end: int) -> int:
        """End of the epoch of that number in the list, in a log that ends at `end`."""
        return self._starts[number + 1].start if number + 1 < len(self._starts) else end


def common_position(own: EpochHistory, own_end: int, other: EpochHistory, other_end: int) -> int:
    """The end of what two logs of one log id have in common.

    It is the end, in the shorter log, of the newest epoch that both have from the same position on.
    """
    own_starts, other_starts = (BEFORE_EPOCHS, *own.starts), (BEFORE_EPOCHS, *other.starts)
    places = {each: number for number, each in enumerate(other_starts)}
    for number in reversed(range(len(own_starts))):
        if own_starts[number] in places:
            return min(own.end_of(number, own_end), other.end_of(places[own_starts[number]], other_end))
    raise AssertionError("every log begins in the same way")
