"""FOLLOW: from where on a slave may follow its master. Design: docs/design/0030-replication.md."""

from enum import Enum
from typing import Protocol

from engine.errors import LogError, PositionGoneError
from engine.log.epochs import EpochHistory, common_position
from engine.replication.frames import PROVEN_BYTES, Follow, Followed


class FollowStep(Enum):
    """Next step of a slave after the answer to its FOLLOW."""

    FOLLOW = "take the bytes from its end on"
    TRUNCATE = "cut its log to the common position, and ask again"
    FETCH = "get sealed segments first: the master has deleted what it lacks, or it has lost what they have in common"


class ForeignLogError(LogError):
    """Two logs of one id have other bytes at the same positions, and no epoch tells why: copies that both went on."""


class ComparedLog(Protocol):
    """The part of `engine.log.read.raw_batches` that is used here."""

    @property
    def first_position(self) -> int: ...

    @property
    def end_position(self) -> int: ...

    def checksum(self, end: int, bytes_max: int) -> tuple[int, int]: ...

    def proof(self, end: int, bytes_max: int) -> tuple[int, int]: ...


def answer_follow(log: ComparedLog, history: EpochHistory, epoch: int, asked: Follow) -> Followed:
    """The master's answer. `epoch`: of its record. Raises OSError: the disk cannot read now."""
    common = common_position(history, log.end_position, EpochHistory(asked.starts), asked.end)
    first = log.first_position
    if asked.end == first and not asked.starts:
        common = first  # a new copy without a batch: the epochs may have begun in segments that are deleted
    proven, checksum = log.proof(common, PROVEN_BYTES) if common >= first else (0, 0)
    return Followed(epoch, common, first, proven, checksum)


def next_step(log: ComparedLog, answer: Followed) -> FollowStep:
    """Return the next step of the slave.

    Raises:
        ForeignLogError: it must not follow.
        OSError: the disk cannot read now.
    """
    if answer.common < answer.first:
        return FollowStep.FETCH
    try:
        own = log.checksum(answer.common, answer.proven)
    except PositionGoneError:  # files are lost, perhaps with the records of its epochs
        return FollowStep.FETCH
    if own != (answer.proven, answer.checksum):
        raise ForeignLogError(
            f"{answer.proven} bytes below position {answer.common} are not the master's: "
            "give this broker an empty directory"
        )
    return FollowStep.FOLLOW if log.end_position == answer.common else FollowStep.TRUNCATE
