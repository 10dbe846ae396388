"""Timer store: appends, reads and finds the records of timers in the log."""

import logging
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple, Protocol

from common.limited_log import LimitedLog
from engine.errors import DiskFullError, EngineError, PartlyWrittenError
from engine.link.timer import Timer
from engine.log.format import BATCH_HEADER_SIZE, CODE_OK, CONTROL_TOPIC_ID, KIND_TIMER, pack_batch, padded
from engine.log.timer_log import TimerLog
from engine.timers.native import TimerTable, hash_id, load
from engine.timers.record import read_timer

limited = LimitedLog(logging.getLogger("penstock.engine"))
BATCH_BYTES = 256 << 10


class TimerAddress(NamedTuple):
    """Address of a timer's record: base of its segment, byte in its file."""

    base: int
    at: int

    @property
    def position(self) -> int:
        """Position in the log."""
        return self.base + self.at


class TimerWatcher(Protocol):
    """Follows the timers that enter the table."""

    def on_entered(self, topic_id: int) -> None:
        """A timer of the topic is pending: a new one, a new round, or one that was relocated."""

    def on_put_back(self, address: TimerAddress) -> None:
        """A timer is in the table again, maybe in another cell."""


class TimerStore:
    """Records of timers. Callers enter what they append into the table, too."""

    def __init__(self, log: TimerLog, table: TimerTable) -> None:
        self.log, self.table = log, table
        self.totals: dict[int, int] = {}
        """Base of a segment -> number of timers in it, ended ones included."""
        self.damaged: set[int] = set()
        """Bases of segments of which the start could not read all timers."""
        self.watcher: TimerWatcher | None = None
        """Is told of each timer that enters the table."""

    def read(self, address: TimerAddress) -> Timer | None:
        """Return the timer; None when it fails verification. Raises OSError."""
        return read_timer(self.log, *address)

    def can_read(self, base: int) -> bool:
        """Whether all pending timers of a segment can be read, also those that the start could not. Blocks to read them."""
        for segment, ended in self.log.segments():
            if segment.base == base:
                if segment.is_partial:
                    return False
                return not load(TimerTable(0), segment.source(), segment.file, base, self.log.log_id, ended)[2]
        return False

    def find(self, topic_id: int, shown_id: bytes) -> tuple[TimerAddress, Timer] | None:
        """Return the pending timer of the topic with that id."""
        for base, at, _ in self.table.find(hash_id(topic_id, shown_id)):
            timer = self.read(TimerAddress(base, at))
            if timer is not None and (timer.topic_id, timer.shown_id) == (topic_id, shown_id):
                return TimerAddress(base, at), timer
        return None

    def append(self, records: list[bytes]) -> list[TimerAddress]:
        """Append packed timers; they are in the page cache on return, but not in the table.

        Returns: the addresses of those that are stored: the first ones only, when the log refuses the others.
        Raises:
            DiskFullError: none is stored. PartlyWrittenError: only a restart can tell.
        """
        addresses: list[TimerAddress] = []
        for chunk in chunks(records, min(BATCH_BYTES, self.log.batch_bytes_max // 4)):
            try:
                addresses += self._append(chunk)
            except PartlyWrittenError:
                raise
            except Exception as error:
                if not addresses:
                    raise
                limited.error("%d of %d delayed messages are stored: %s", len(addresses), len(records), error)
                break
        return addresses

    def _append(self, records: list[bytes]) -> list[TimerAddress]:
        """Append one batch. An error other than PartlyWrittenError means that the log has nothing of it."""
        batch = pack_batch(KIND_TIMER, CONTROL_TOPIC_ID, KIND_TIMER, records)
        ((code, _),) = append_or_nothing(self.log, batch, 1)
        if code != CODE_OK:
            raise DiskFullError(f"delayed messages: the log refused a batch with code {code}")
        base = self.log.active_base
        self.totals[base] = self.totals.get(base, 0) + len(records)
        # The batch is the last one of the log.
        first = self.log.end_position - padded(len(batch)) - base + BATCH_HEADER_SIZE
        return [TimerAddress(base, first + at) for at in accumulate(map(len, records[:-1]), initial=0)]

    def enter(self, address: TimerAddress, timer: Timer) -> None:
        """Enter the timer into the table as pending."""
        self.table.insert(*address, timer.due_ms, hash_id(timer.topic_id, timer.shown_id))
        self.announce(timer)

    def announce(self, timer: Timer) -> None:
        """Tell the watcher of a timer that is pending from now on, also before a full disk lets it into the table."""
        if self.watcher is not None:
            self.watcher.on_entered(timer.topic_id)

    def put_back(self, base: int, at: int, due_ms: int, hashed: int) -> None:
        """Enter a timer again that was taken from the table as due."""
        self.table.insert(base, at, due_ms, hashed)
        if self.watcher is not None:
            self.watcher.on_put_back(TimerAddress(base, at))


def append_or_nothing(log: TimerLog, batches: bytes, count: int) -> list[tuple[int, int]]:
    """As `TimerLog.append`, with one meaning of errors: PartlyWrittenError when a part may be in the log, else none."""
    before = log.end_position
    try:
        return log.append(batches, count)
    except EngineError:
        raise
    except Exception as error:
        if log.end_position != before:
            raise PartlyWrittenError(f"an append of delayed messages failed in the middle: {error}") from error
        raise


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
