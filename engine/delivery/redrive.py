"""A group's dead letters as a store: looked through, sent again, thrown away.

What the group has not acknowledged in its dead-letter topic is there; so whatever takes one out acknowledges it for the
group, and two operators, or one and a consumer, never take the same one. Every call does a bounded piece of work and says
where the next one goes on; nothing of it is kept, so whoever drives it may stop, die and begin again.
"""

from collections.abc import Iterator
from typing import NamedTuple

from common.dead_letters import QUEUES_MAX, dead_letter_topic
from common.keyhash import queue_of
from engine.delivery import dead_letter
from engine.delivery.dead_letter import StoredMessage
from engine.delivery.delivery import Delivery
from engine.delivery.queue_cursor import QueueCursor
from engine.errors import CorruptionError, DiskFullError
from engine.log.format import KIND_MESSAGES, pack_batch, whole_records
from engine.log.types import Topic

SCANNED_MAX = 500
"""Dead letters looked at in a call: a few milliseconds."""
BYTES_MAX = 1 << 20


class ScatteredError(Exception):
    """Too many dead letters have been passed over by a filter: progress could not keep what was taken out between them."""


class DeadLetterSelection(NamedTuple):
    """Which dead letters; None: whichever. `reason`: a part of it; since and until: when they died."""

    cause: str | None = None
    reason: str | None = None
    topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def takes(self, letter: "DeadLetter") -> bool:
        """Whether the dead letter is one of them."""
        origin = letter.record.origin
        return (
            self.cause in (None, origin.get("cause"))
            and (self.reason is None or self.reason in origin.get("reason", ""))
            and self.topic in (None, origin.get("topic"))
            and (self.since_ms is None or letter.died_ms >= self.since_ms)
            and (self.until_ms is None or letter.died_ms < self.until_ms)
        )


class DeadLetter(NamedTuple):
    """One dead letter where it lies."""

    offset: int
    died_ms: int
    record: StoredMessage


class DeadLetterPage(NamedTuple):
    """What a call found. `next_offset`: where the next one goes on; `end`: of the topic when it was looked at."""

    letters: list[DeadLetter]
    next_offset: int
    end: int


class DeadLetterStore:
    """All groups' dead letters.

    Args:
        store: the log.
    """

    def __init__(self, store, delivery: Delivery) -> None:
        self._store, self._delivery, self._ownership = store, delivery, delivery.ownership
        self.unsettled: dict[str, int] = {}
        """Messages sent again and not yet durable, by group."""

    def look(self, group: str, choice: DeadLetterSelection, after: int) -> DeadLetterPage:
        """Dead letters from offset `after` on, those in somebody's hands included."""
        cursor = self._cursor(group)
        return self._scan(cursor, choice, after, free_only=False) if cursor else DeadLetterPage([], 0, 0)

    def purge(self, group: str, choice: DeadLetterSelection, after: int) -> DeadLetterPage:
        """Throw away what nobody holds; it is gone when this returns, after a crash perhaps there again."""
        cursor = self._cursor(group)
        if cursor is None:
            return DeadLetterPage([], 0, 0)
        scan = self._scan(cursor, choice, after, free_only=True)
        self._settle(cursor, *self._claim(cursor, scan))
        return scan

    def redrive(self, group: str, choice: DeadLetterSelection, to: Topic | None, after: int, now_ms: int) -> DeadLetterPage:
        """Send what nobody holds to the topic that it came from, or to another one.

        Each counts as taken out when its copy is durable. A crash in between leaves both. What came from a topic that the
        engine does not have stays. Raises DiskFullError; then nothing was sent.
        """
        cursor = self._cursor(group)
        if cursor is None:
            return DeadLetterPage([], 0, 0)
        scan = self._scan(cursor, choice, after, free_only=True)
        scan = scan._replace(letters=[letter for letter in scan.letters if self._target(letter, to) is not None])
        if not scan.letters:
            return scan
        batches = self._batches(scan.letters, to)
        claim, ranges = self._claim(cursor, scan)
        data = b"".join(batches)
        try:
            codes = self._store.append(data, len(batches), self._delivery.wall_ms())
            if any(code for code, _ in codes):
                raise DiskFullError("the log took only a part; what it took will come twice")
        except DiskFullError:
            for first, end in ranges:
                cursor.in_flight.hold(first, end, claim, False, now_ms, now_ms)
            raise
        self.unsettled[group] = self.unsettled.get(group, 0) + len(scan.letters)
        self._store.when_durable(
            self._store.end_position, lambda: self._redriven(group, cursor, claim, ranges, len(scan.letters))
        )
        return scan

    def _cursor(self, group: str) -> QueueCursor | None:
        name = dead_letter_topic(group)
        topic, queue = self._store.topic(name), self._ownership.nearest(name, 0, QUEUES_MAX)
        if topic is None or queue is None or queue >= topic.queues:
            return None
        return self._delivery.group(group).cursors(topic, 0)[queue]

    def _scan(self, cursor: QueueCursor, choice: DeadLetterSelection, after: int, *, free_only: bool) -> DeadLetterPage:
        first_offset, end = self._store.bounds(cursor.topic_id, cursor.queue)
        cursor.see(first_offset, end)
        at, left = max(after, first_offset), SCANNED_MAX
        letters: list[DeadLetter] = []
        for first, stop in undone(cursor, at, end, free_only=free_only):
            try:
                pieces = self._store.read(cursor.topic_id, cursor.queue, first, min(stop - first, left), BYTES_MAX)
            except CorruptionError as damage:
                return DeadLetterPage(letters, max(damage.next_offset or end, first + 1), end)
            at = first
            for piece in pieces:
                for record in whole_records(piece.records):
                    letter = DeadLetter(at, piece.stored_at_ms, dead_letter.parse(record))
                    at, left = at + 1, left - 1
                    if choice.takes(letter):
                        letters.append(letter)
            if at < stop:
                return DeadLetterPage(letters, at, end)  # enough for a call, or the rest is being fetched
        return DeadLetterPage(letters, end, end)

    def _claim(self, cursor: QueueCursor, scan: DeadLetterPage) -> tuple[int, list[tuple[int, int]]]:
        """Keep the found ones from everybody; returns the lease that has them and their ranges."""
        settings = self._delivery.settings
        claim = self._delivery.next_lease()
        if not scan.letters:
            return claim, []
        last = scan.letters[-1].offset + 1
        passed = cursor.in_flight.messages + max(0, last - cursor.next_offset)
        if passed > settings.in_flight_max or len(cursor.in_flight) + 2 * SCANNED_MAX > settings.ranges_max:
            raise ScatteredError
        cursor.pass_over(last)
        ranges: list[tuple[int, int]] = []
        for letter in scan.letters:
            if ranges and ranges[-1][1] == letter.offset:
                ranges[-1] = ranges[-1][0], letter.offset + 1
            else:
                ranges.append((letter.offset, letter.offset + 1))
        for first, end in ranges:
            cursor.in_flight.claim_ready(first, end, claim)
        return claim, ranges

    def _settle(self, cursor: QueueCursor, claim: int, ranges: list[tuple[int, int]]) -> None:
        for first, end in ranges:
            cursor.settle(first, end, claim, False)
        self._delivery.on_moved(cursor)

    def _redriven(self, group: str, cursor: QueueCursor, claim: int, ranges: list[tuple[int, int]], count: int) -> None:
        self._settle(cursor, claim, ranges)
        self.unsettled[group] -= count
        if not self.unsettled[group]:
            del self.unsettled[group]

    def _target(self, letter: DeadLetter, to: Topic | None) -> tuple[Topic, int] | None:
        """The queue that it came from; elsewhere that of its key, or the next one that lives here. None: there is none."""
        origin = letter.record.origin
        topic = to or self._store.topic(origin.get("topic", ""))
        if topic is None:
            return None
        if (
            origin.get("topic") == topic.name
            and origin.get("queue", "").isdigit()
            and int(origin["queue"]) < topic.queues
        ):
            return topic, int(origin["queue"])
        wanted = queue_of(letter.record.key or origin.get("offset", "").encode(), topic.queues)
        queue = self._ownership.nearest(topic.name, wanted, topic.queues)
        return None if queue is None else (topic, queue)

    def _batches(self, letters: list[DeadLetter], to: Topic | None) -> list[bytes]:
        """One batch a queue that they go to, in their order."""
        queues: dict[tuple[int, int], list[bytes]] = {}
        for letter in letters:
            target = self._target(letter, to)
            assert target is not None
            topic, queue = target
            queues.setdefault((topic.id, queue), []).append(dead_letter.revive(letter.record, topic.name))
        return [pack_batch(KIND_MESSAGES, *queue, records) for queue, records in queues.items()]


def undone(cursor: QueueCursor, first: int, end: int, *, free_only: bool) -> Iterator[tuple[int, int]]:
    """The ranges of first..end that the group has not acknowledged; `free_only`: and that nobody holds."""
    for range_ in cursor.in_flight.ranges:
        if range_.end > first and range_.first < end and (range_.ready or not free_only):
            yield max(range_.first, first), min(range_.end, end)
    at = max(cursor.next_offset, first)
    for start, stop in list(cursor.early):
        if at < min(start, end):
            yield at, min(start, end)
        at = max(at, stop)
    if at < end:
        yield at, end
