"""The log's port: what the layers above may call, one Protocol per user.

`engine.log.Log` implements all of them. `engine.log.memory.MemoryLog` implements `DeliveryLog`, for tests of delivery.
A replicated log (later) implements the same Protocols over a `Log` of its own: it appends on the leader, applies on
followers, and ends reads at the confirmed position.

Positions are byte addresses in the log and only grow. Offsets count records within one queue.

| position | bytes below it |
|---|---|
| `end_position` | are in the page cache of this node; reads return them (until reads end at the confirmed position) |
| `durable_position` | are synced on this node |
| confirmed position (later) | are on a quorum of nodes; equal to the durability that the caller asked for on one node |

Callers that must not lose something wait with `when_durable(end_position, callback)`. A replicated log will offer the
confirmed position by a method of its own, so no caller may conclude "confirmed" from `durable_position`.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from engine.env.base import File
from engine.log.growth import QueueGrowth
from engine.log.segment.patience import Patience
from engine.log.segment.segment import Segment
from engine.log.types import RecordSlice, Topic


class Positions(Protocol):
    """The end of the log, and waiting until it is synced."""

    @property
    def end_position(self) -> int:
        """Bytes below are in the page cache and readable."""

    def when_durable(self, position: int, callback: Callable[[], None]) -> None:
        """Call `callback()` once all bytes below `position` are synced: at once when they are, else from the loop."""


class TopicLog(Protocol):
    """Topics by name and by id."""

    def topic(self, name: str) -> Topic | None:
        """The topic of that name, or None."""

    def topic_by_id(self, topic_id: int) -> Topic | None:
        """The topic of that id, or None."""

    def create_topics(self, wanted: Iterable[tuple[str, int]]) -> list[Topic]:
        """Find or create each (name, queues), in order; a topic with fewer queues grows.

        Raises EngineConfigError, DiskFullError.
        """

    def topics(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[Topic]:
        """Up to `limit` topics in the byte order of their names: those with the prefix, after the name `after`."""

    def end_if_empty(self, topic: Topic) -> int | None:
        """Sum of the end offsets of the topic's queues when the log holds nothing of it; None: it cannot be forgotten.

        Raises OSError, StoreDamagedError.
        """

    def forget_topic(self, topic: Topic) -> None:
        """Make a topic unknown that end_if_empty() gives a number for. Its id is never used again.

        Raises DiskFullError.
        """


class ProgressLog(Protocol):
    """Small values by key, for what groups have acknowledged."""

    def put_progress(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Store (key, value) pairs; an empty value removes the key. In the page cache on return."""

    def progress(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All (key, value) whose key has the prefix, in key order."""

    def since_leases_ms(self) -> int | None:
        """Milliseconds since the master's state of leases came to this node; None: it has not come."""


class ReadableLog(Protocol):
    """Records by topic and queue. Each method raises UnknownTopicError for a queue that does not exist.

    `bounds`, `end` and `read` raise UnreadableError while the disk refuses to read; `take_woken` returns the queue when
    it is time for another try.
    """

    def bounds(self, topic_id: int, queue: int) -> tuple[int, int]:
        """(first offset, end offset): records with first <= offset < end can be read."""

    def end(self, topic_id: int, queue: int) -> int:
        """The end offset, at a tenth of the cost of `bounds`."""

    def used_queues(self, topic_id: int) -> set[int]:
        """At least those of the topic's queues that have, or had, a record."""

    def read(
        self, topic_id: int, queue: int, offset: int, max_records: int, max_bytes: int, *, whole: bool = False
    ) -> list[RecordSlice]:
        """Records from `offset` on; the first one is returned even when it is larger than `max_bytes`.

        Empty at the end, and while the records are being fetched (`is_fetching`). With `whole` also the rest of the
        batch in which `max_bytes` ends. Raises OffsetOutOfRangeError, CorruptionError.
        """

    def offset_at_time(self, topic_id: int, queue: int, at_ms: int) -> int:
        """Offset of the first record stored at or after `at_ms`, else the end offset."""

    def watch(self, topic_id: int, queue: int) -> None:
        """Arm the queue: its next append puts it into `take_woken()` once, and disarms it."""

    def is_fetching(self, topic_id: int, queue: int) -> bool:
        """Whether a read of the queue returned nothing because its records are being fetched."""

    def take_woken(self) -> list[tuple[int, int]]:
        """Queues, as (topic id, queue), that were armed and have got records, or whose fetched records have arrived."""


class AppendableLog(Positions, Protocol):
    """Appending batches."""

    def append(self, batches: bytes, count: int, now_ms: int) -> list[tuple[int, int]]:
        """Append `count` batches (each at a multiple of 8 in `batches`) and return (code, base offset) for each.

        Codes: 0 stored. 2 stored before: its id is in the topic's window, and the offset is the first copy's.
        100 malformed, or no such queue. 101 larger than a segment. 102 unknown topic id. 203 the view cannot be read.
        205 no room on the disk. A refused batch does not stop the others, except that one with a wrong size hides those
        after it. Bytes are in the page cache on return. Raises DiskFullError or NotStoredError when nothing is stored,
        PartlyWrittenError when a part may be, ClosedError.
        """


class GrowthLog(Protocol):
    """Growths of topics, for order by key."""

    def of(self, topic_id: int) -> list[QueueGrowth]:
        """The topic's growths, oldest first."""

    def old_counts(self, topic_id: int) -> list[int]:
        """The numbers of queues that the topic had before its growths."""

    def on_growth(self, callback: Callable[[Topic, list[QueueGrowth]], None]) -> None:
        """Have `callback(topic, all its growths)` called after each growth, before a message is in a new queue."""

    def on_replacing(self, callback: Callable[[Topic, int], None]) -> None:
        """Have `callback(old, new id)` called before a topic is created again."""

    def on_replaced(self, callback: Callable[[Topic, Topic], None]) -> None:
        """Have `callback(old, new)` called after a topic was created again: the old one has no name any more."""

    def on_forgotten(self, callback: Callable[[Topic], None]) -> None:
        """Have `callback(topic)` called after a topic was forgotten: its name and its id are unknown."""


class DeliveryLog(AppendableLog, ReadableLog, TopicLog, ProgressLog, Protocol):
    """The log for delivery: groups, their cursors, dead letters, redrive.

    The native reader of delivery also looks for `appender`, `log_id`, `start_offsets` and `retention`; a log without
    them is read through `read` alone.
    """

    @property
    def growth(self) -> GrowthLog:
        """Growths of topics."""


class TimerRecords(Positions, Protocol):
    """The log for timers: `Log.for_timers`."""

    log_id: bytes
    fired: list[tuple[int, int, int]]
    batch_bytes_max: int
    patience: Patience

    def monotonic_ms(self) -> int:
        """The monotonic clock."""

    @property
    def active_base(self) -> int:
        """Base of the segment that is being written."""

    @property
    def refusal(self) -> str:
        """Reason with which appends of messages are refused at present; empty when they are accepted."""

    def append(self, batches: bytes, count: int) -> list[tuple[int, int]]:
        """As `AppendableLog.append`, for batches of any kind, and also while messages are refused."""

    def queue_count(self, topic_id: int) -> int:
        """Number of the topic's queues; 0 when there is no such topic."""

    def file_of(self, base: int) -> File | None:
        """File of the segment at `base`, or None."""

    def read_at(self, base: int, at: int, size: int) -> bytes:
        """Bytes of the segment at `base`; empty when there is no such segment."""

    def first_copy(self, topic_id: int, shown_id: bytes) -> tuple[int, int] | None:
        """(queue, offset) of a message with that id which the topic received within the id's window."""

    def segments(self) -> Iterator[tuple[Segment, list[int]]]:
        """Segments with pending timers, each with the addresses of its timers that have ended."""

    def mark(self, ended: Mapping[int, list[int]], covered_to: int) -> None:
        """Append that these timers have ended: base of the segment to byte addresses."""

    def put_fired_from(self, position: int | None) -> None:
        """Note the lowest position of fired batches that no mark covers; None when all are covered."""

    def all_ended(self, base: int) -> None:
        """Note that all timers of a sealed segment have ended."""

    def forget(self, base: int) -> None:
        """Drop the state of a deleted segment."""


class PendingTimers(Protocol):
    """Delayed messages, for retention: they outlive the segment that they were stored in."""

    def relocate(self, base: int) -> Iterator[None]:
        """Append again the delayed messages pending in the segment, in steps. Raises DiskFullError."""

    def forget(self, base: int) -> None:
        """Drop the state of the segment, which was deleted."""


class SpaceReport(Protocol):
    """Retention for metrics and operators: `Log.retention`."""

    deleted_segments: int
    deleted_bytes: int
    early_segments: int

    @property
    def log_bytes(self) -> int:
        """Size of all segment files."""

    @property
    def side_bytes(self) -> int:
        """Size of the files beside the segments."""

    @property
    def earliest_ms(self) -> int:
        """Creation time of the oldest segment."""

    def step(self, timers: PendingTimers | None = None) -> int:
        """Do the next piece of retention's work; returns in how many milliseconds to call again.

        An engine with timers passes them in every call.
        """


class PacedWork(Protocol):
    """Background work in small steps: `Log.look_up.maker`, the scrub."""

    def steps(self) -> Generator[float, None, None]:
        """Do a small piece of work at a time and yield how many seconds to wait before the next. Never ends."""


class UpkeepLog(Positions, Protocol):
    """The log for the node, which keeps it in order and ends it."""

    @property
    def retention(self) -> SpaceReport:
        """Retention: call its `step()` from the loop."""

    @property
    def durable_position(self) -> int:
        """Bytes below are synced on this node."""

    def checkpoint(self) -> None:
        """Sync, and bring the view up to date. Blocks. Raises CheckpointError."""

    def close(self) -> None:
        """Write staged batches, sync, release the directory. Blocks."""
