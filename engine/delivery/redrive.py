"""Dead letters of a group as a store: list, redrive, purge.

A dead letter exists while the group has not acknowledged it in its dead-letter topic. A redrive or purge acknowledges
it for the group, so two operators, or an operator and a consumer, never process the same one. Every call does a bounded
amount of work and returns where the next one continues. No state remains between calls, so a caller may stop at any
point and begin again.
"""

from collections.abc import Iterator
from typing import NamedTuple

from common.dead_letters import QUEUES_MAX, dead_letter_topic
from common.keyhash import queue_now, queue_of
from engine.delivery import dead_letter
from engine.delivery.dead_letter import StoredMessage
from engine.delivery.delivery import Delivery
from engine.delivery.queue_cursor import QueueCursor
from engine.errors import CorruptionError, DiskFullError
from engine.log.format import KIND_MESSAGES, pack_batch, whole_records
from engine.log.port import DeliveryLog
from engine.log.types import Topic

READ_MAX = 500
"""Dead letters read per call: a few milliseconds of work."""
BYTES_MAX = 1 << 20


class ScatteredError(Exception):
    """A selection leaves too many gaps between the selected dead letters: progress could not store them."""


class DeadLetterSelection(NamedTuple):
    """Conditions on dead letters; None: any. `reason`: a part of it; since and until: time of dead-lettering.

    `offsets`, `before`: in the dead-letter topic.
    """

    cause: str | None = None
    reason: str | None = None
    topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    offsets: frozenset[int] | None = None
    before: int | None = None

    def matches(self, letter: "DeadLetter") -> bool:
        """Whether the dead letter meets all conditions."""
        origin = letter.record.origin
        return (
            self.cause in (None, origin.get("cause"))
            and (self.reason is None or self.reason in origin.get("reason", ""))
            and self.topic in (None, origin.get("topic"))
            and (self.since_ms is None or letter.stored_at_ms >= self.since_ms)
            and (self.until_ms is None or letter.stored_at_ms < self.until_ms)
            and (self.offsets is None or letter.offset in self.offsets)
            and (self.before is None or letter.offset < self.before)
        )


class DeadLetter(NamedTuple):
    """One dead letter with its position in the topic."""

    offset: int
    stored_at_ms: int
    record: StoredMessage


class DeadLetterPage(NamedTuple):
    """Result of a call. `next_offset`: start of the next call; `end`: end offset of the topic."""

    letters: list[DeadLetter]
    next_offset: int
    end: int


class DeadLetterStore:
    """Dead letters of all groups."""

    def __init__(self, store: DeliveryLog, delivery: Delivery) -> None:
        self._store, self._delivery, self._ownership = store, delivery, delivery.ownership
        self.unsettled: dict[str, int] = {}
        """Redriven messages that are not yet durable, by group."""

    def look(self, group: str, selection: DeadLetterSelection, after: int) -> DeadLetterPage:
        """List dead letters from offset `after` on, leased ones included."""
        cursor = self._cursor(group)
        return self._scan(cursor, selection, after, free_only=False) if cursor else DeadLetterPage([], 0, 0)

    def purge(self, group: str, selection: DeadLetterSelection, after: int) -> DeadLetterPage:
        """Delete dead letters that are not leased. After a crash they may be there again."""
        cursor = self._cursor(group)
        if cursor is None:
            return DeadLetterPage([], 0, 0)
        page = self._scan(cursor, selection, after, free_only=True)
        self._settle(cursor, *self._claim(cursor, page))
        return page

    def redrive(
        self, group: str, selection: DeadLetterSelection, to: Topic | None, after: int, now_ms: int
    ) -> DeadLetterPage:
        """Send dead letters that are not leased to the topic of their origin, or to topic `to`.

        Each is acknowledged once its copy is durable; a crash in between leaves both. Dead letters from a topic that
        the engine does not have stay. Raises what the append raises; then all of them stay.
        """
        cursor = self._cursor(group)
        if cursor is None:
            return DeadLetterPage([], 0, 0)
        page = self._scan(cursor, selection, after, free_only=True)
        page = page._replace(letters=[letter for letter in page.letters if self._target(letter, to) is not None])
        if not page.letters:
            return page
        batches = self._batches(page.letters, to)
        claim, ranges = self._claim(cursor, page)
        data = b"".join(batches)
        try:
            codes = self._store.append(data, len(batches), self._delivery.wall_ms())
            if any(code for code, _ in codes):
                raise DiskFullError(
                    "redrive: the log stored only a part of the messages; that part will be delivered twice"
                )
        except Exception:
            # Whatever failed: claimed dead letters would stay claimed until a restart.
            for first, end in ranges:
                cursor.in_flight.hold(first, end, claim, False, now_ms, now_ms)
            self._delivery.on_moved(cursor)
            raise
        self.unsettled[group] = self.unsettled.get(group, 0) + len(page.letters)
        self._store.when_durable(
            self._store.end_position, lambda: self._redriven(group, cursor, claim, ranges, len(page.letters))
        )
        return page

    def _cursor(self, group: str) -> QueueCursor | None:
        name = dead_letter_topic(group)
        topic, queue = self._store.topic(name), self._ownership.nearest(name, 0, QUEUES_MAX)
        if topic is None or queue is None or queue >= topic.queues:
            return None
        return self._delivery.group(group).cursors(topic, 0)[queue]

    def _scan(
        self, cursor: QueueCursor, selection: DeadLetterSelection, after: int, *, free_only: bool
    ) -> DeadLetterPage:
        first_offset, end = self._store.bounds(cursor.topic_id, cursor.queue)
        cursor.see(first_offset, end)
        at, left = max(after, first_offset), READ_MAX
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
                    if selection.matches(letter):
                        letters.append(letter)
            if at < stop:
                return DeadLetterPage(letters, at, end)  # enough for one call, or the rest is being fetched
        return DeadLetterPage(letters, end, end)

    def _claim(self, cursor: QueueCursor, page: DeadLetterPage) -> tuple[int, list[tuple[int, int]]]:
        """Move the found ones to a non-expiring internal lease; returns the lease and their ranges."""
        settings = self._delivery.settings
        claim = self._delivery.next_lease()
        if not page.letters:
            return claim, []
        last = page.letters[-1].offset + 1
        held = cursor.in_flight
        passed = held.messages - held.withheld_messages + max(0, last - cursor.next_offset)
        if passed > settings.in_flight_max or len(held) - held.withheld + 2 * READ_MAX > settings.ranges_max:
            raise ScatteredError
        cursor.pass_over(last)
        ranges: list[tuple[int, int]] = []
        for letter in page.letters:
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
        """Return the queue of its origin, or its key's queue today; in another topic that of its key, or the next owned one.

        None: there is none.
        """
        origin = letter.record.origin
        topic = to or self._store.topic(origin.get("topic", ""))
        if topic is None:
            return None
        if (
            origin.get("topic") == topic.name
            and origin.get("queue", "").isdigit()
            and int(origin["queue"]) < topic.queues
        ):
            return topic, self._queue_now(topic, int(origin["queue"]), letter.record.key)
        wanted = queue_of(letter.record.key or origin.get("offset", "").encode(), topic.queues)
        queue = self._ownership.nearest(topic.name, wanted, topic.queues)
        return None if queue is None else (topic, queue)

    def _queue_now(self, topic: Topic, queue: int, key: bytes) -> int:
        """The queue of the key today, if it is this engine's: the topic may have got more queues since the send."""
        now = queue_now(key, queue, self._store.growth.old_counts(topic.id), topic.queues) if key else queue
        return now if self._ownership.nearest(topic.name, now, topic.queues) == now else queue

    def _batches(self, letters: list[DeadLetter], to: Topic | None) -> list[bytes]:
        """Return one batch per target queue, in the order of the dead letters."""
        queues: dict[tuple[int, int], list[bytes]] = {}
        for letter in letters:
            target = self._target(letter, to)
            assert target is not None
            topic, queue = target
            queues.setdefault((topic.id, queue), []).append(dead_letter.unwrap(letter.record, topic.name))
        return [pack_batch(KIND_MESSAGES, *queue, records) for queue, records in queues.items()]


def undone(cursor: QueueCursor, first: int, end: int, *, free_only: bool) -> Iterator[tuple[int, int]]:
    """Yield the ranges of first..end that the group has not acknowledged; `free_only`: and that are not leased."""
    for each in cursor.in_flight.ranges:
        if each.end > first and each.first < end and (each.ready or not free_only):
            yield max(each.first, first), min(each.end, end)
    at = max(cursor.next_offset, first)
    for start, stop in list(cursor.early):
        if at < min(start, end):
            yield at, min(start, end)
        at = max(at, stop)
    if at < end:
        yield at, end
