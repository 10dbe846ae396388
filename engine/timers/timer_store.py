"""Timer store: appends, reads and finds the records of timers in the log."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engine.errors import DiskFullError
from engine.link.timer import Timer
from engine.log.format import BATCH_HEADER_SIZE, CODE_OK, CONTROL_TOPIC_ID, KIND_TIMER, pack_batch
from engine.log.timer_log import TimerLog
from engine.timers.native import TimerTable, hash_id
from engine.timers.record import read_timer

BATCH_BYTES = 256 << 10


class TimerAddress(NamedTuple):
    """Address of a timer's record: base of its segment, byte in its file."""

    base: int
    at: int

    @property
    def position(self) -> int:
        """Position in the log."""
        return self.base + self.at


class TimerStore:
    """Records of timers. Callers enter what they append into the table, too."""

    def __init__(self, log: TimerLog, table: TimerTable) -> None:
        self.log, self.table = log, table
        self.totals: dict[int, int] = {}
        """Base of a segment -> number of timers in it, ended ones included."""

    def read(self, address: TimerAddress) -> Timer | None:
        """Return the timer; None when it fails verification. Raises OSError."""
        return read_timer(self.log, *address)

    def find(self, topic_id: int, shown_id: bytes) -> tuple[TimerAddress, Timer] | None:
        """Return the pending timer of the topic with that id."""
        for base, at, _ in self.table.find(hash_id(topic_id, shown_id)):
            timer = self.read(TimerAddress(base, at))
            if timer is not None and (timer.topic_id, timer.shown_id) == (topic_id, shown_id):
                return TimerAddress(base, at), timer
        return None

    def append(self, records: list[bytes]) -> list[TimerAddress]:
        """Append packed timers; they are in the page cache on return, but not in the table. Raises DiskFullError."""
        addresses: list[TimerAddress] = []
        for chunk in chunks(records, min(BATCH_BYTES, self.log.batch_bytes_max // 4)):
            batch = pack_batch(KIND_TIMER, CONTROL_TOPIC_ID, KIND_TIMER, chunk)
            ((code, offset),) = self.log.append(batch, 1)
            if code != CODE_OK:
                raise DiskFullError(f"delayed messages: the log refused a batch with code {code}")
            addresses += self.addresses(offset, chunk)
        return addresses

    def addresses(self, offset: int, records: list[bytes]) -> Iterator[TimerAddress]:
        """Yield the addresses of the records of the TIMER batch at `offset`; counts them in `totals`."""
        base, at = self.log.place_of(offset)
        self.totals[base] = self.totals.get(base, 0) + len(records)
        at += BATCH_HEADER_SIZE
        for record in records:
            yield TimerAddress(base, at)
            at += len(record)

    def enter(self, address: TimerAddress, timer: Timer) -> None:
        """Enter the timer into the table as pending."""
        self.table.insert(*address, timer.due_ms, hash_id(timer.topic_id, timer.shown_id))


def chunks(records: Iterable[bytes], size_max: int) -> Iterator[list[bytes]]:
    """Yield lists of records of at most `size_max` bytes, or of one record."""
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
