"""Timers in the log: where their records are, and which have ended. The table says what is pending; this reads and writes."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engine.errors import DiskFullError
from engine.link.timer import Timer
from engine.log.format import BATCH_HEADER_SIZE, CODE_OK, CONTROL_TOPIC_ID, KIND_TIMER, pack_batch
from engine.log.timer_log import TimerLog
from engine.timers.native import Table, hash_id
from engine.timers.record import read_timer

BATCH_BYTES = 256 << 10


class Place(NamedTuple):
    """Where a timer's record is."""

    base: int
    at: int

    @property
    def position(self) -> int:
        """In the log."""
        return self.base + self.at


class Shelf:
    """The records of pending timers. Kept together with the table: what it appends is in the table, too."""

    def __init__(self, log: TimerLog, table: Table) -> None:
        self.log, self.table = log, table
        self.totals: dict[int, int] = {}
        """Base of a segment -> timers in it, ended ones counted."""

    def read(self, place: Place) -> Timer | None:
        """The timer, or None when its bytes do not verify. Raises OSError."""
        return read_timer(self.log, *place)

    def find(self, topic_id: int, shown_id: bytes) -> tuple[Place, Timer] | None:
        """The pending timer of that topic with that id."""
        for base, at, _ in self.table.find(hash_id(topic_id, shown_id)):
            timer = self.read(Place(base, at))
            if timer is not None and (timer.topic_id, timer.shown_id) == (topic_id, shown_id):
                return Place(base, at), timer
        return None

    def append(self, records: list[bytes]) -> list[Place]:
        """Append packed timers; they are in the page cache on return, and in no table yet. Raises DiskFullError."""
        places: list[Place] = []
        for chunk in chunks(records, min(BATCH_BYTES, self.log.batch_bytes_max // 4)):
            batch = pack_batch(KIND_TIMER, CONTROL_TOPIC_ID, KIND_TIMER, chunk)
            ((code, offset),) = self.log.append(batch, 1)
            if code != CODE_OK:
                raise DiskFullError(f"no room for delayed messages (code {code})")
            places += self.places(offset, chunk)
        return places

    def places(self, offset: int, records: list[bytes]) -> Iterator[Place]:
        """Where the records of the TIMER batch with that base offset lie; they are counted."""
        base, at = self.log.place_of(offset)
        self.totals[base] = self.totals.get(base, 0) + len(records)
        at += BATCH_HEADER_SIZE
        for record in records:
            yield Place(base, at)
            at += len(record)

    def enter(self, place: Place, timer: Timer) -> None:
        """Have the timer pending."""
        self.table.add(*place, timer.due_ms, hash_id(timer.topic_id, timer.shown_id))


def chunks(records: Iterable[bytes], size_max: int) -> Iterator[list[bytes]]:
    """Lists of records of about so many bytes."""
    chunk: list[bytes] = []
    size = 0
    for record in records:
        if chunk and size + len(record) > size_max:
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += len(record)
    if chunk:
        yield chunk
