"""Moving messages that nobody will be given again to their group's dead letters.

A message is first claimed: it leaves its holder's hands for a lease of the engine's own, which no time ends. Then its dead letter is
appended, and only when that is durable does the message count as done. A crash in between leaves the message open in the kept progress:
it is buried again, so there may be two dead letters of one origin, but never none.
"""

import logging
from collections import deque
from typing import Any, NamedTuple

from common.dead_letters import QUEUES_MAX, dead_letter_topic
from engine.delivery import dead_letter
from engine.delivery.counts import DeliveryCounts
from engine.delivery.in_flight import InFlightRange
from engine.delivery.leases import LeaseClock
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.queue_ownership import QueueOwnership
from engine.delivery.subscription import WakeList
from engine.errors import CorruptionError, EngineError, OffsetOutOfRangeError
from engine.log.format import KIND_MESSAGES, pack_batch, whole_records

log = logging.getLogger(__name__)
MESSAGES_A_STEP = 256
"""Buried before the loop turns: a few milliseconds."""
BYTES_A_BATCH = 1 << 20
AGAIN_MS = 500
"""Until the next try after a full disk, or while the records are fetched from far behind the end."""


class PendingDeadLetters(NamedTuple):
    """Messages first..end of a cursor, all with one history. `claim`: the lease that holds them until they are done."""

    cursor: QueueCursor
    first: int
    end: int
    claim: int
    attempts: int
    first_lease: int
    last_lease: int
    cause: str
    reason: str


class DeadLettering:
    """Messages claimed and not yet durable as dead letters; `step()` works them off, a few at a time.

    Args:
        store: the log: create_topics, read, append, when_durable.
        dirty: cursors whose progress has to be written.
        wake_list: told of cursors that have room again.
        ownership: where dead letters may lie.
    """

    def __init__(
        self, store, lease_clock: LeaseClock, dirty: set[QueueCursor], counts: DeliveryCounts, wake_list: WakeList, ownership: QueueOwnership
    ) -> None:
        self._store, self._lease_clock, self._ownership = store, lease_clock, ownership
        self._dirty, self._counts, self._wake_list = dirty, counts, wake_list
        self.requests: Any = None  # told of each record that is given up, see engine/replies/requests.py
        self._queue: deque[PendingDeadLetters] = deque()
        self._again_ms = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, cursor: QueueCursor, claimed: list[InFlightRange], claim: int, cause: str, reason: str) -> None:
        """Bury what was claimed by the lease `claim`."""
        for range_ in claimed:
            self._queue.append(
                PendingDeadLetters(cursor, range_.first, range_.end, claim, range_.attempt, range_.first_lease, range_.lease, cause, reason)
            )

    def step(self, now_ms: int) -> int | None:
        """Bury some; returns when to call again, None when none are left."""
        left = MESSAGES_A_STEP
        while self._queue and left > 0 and now_ms >= self._again_ms:
            pending = self._queue.popleft()
            done = self._bury(pending, left)
            if done is None:
                self._queue.append(pending)
                self._again_ms = now_ms + AGAIN_MS
                break
            if done < pending.end:
                self._queue.appendleft(pending._replace(first=done))
            left -= done - pending.first
        return max(now_ms, self._again_ms) if self._queue else None

    def _bury(self, pending: PendingDeadLetters, messages_max: int) -> int | None:
        """Append dead letters for the first messages; returns the offset behind them, None when it cannot be done now."""
        cursor = pending.cursor
        if pending.claim < cursor.floor:
            return (
                pending.end
            )  # an operator has moved the group: it will be given these messages again, or passes them over
        try:
            count = min(pending.end - pending.first, messages_max)
            pieces = self._store.read(cursor.topic_id, cursor.queue, pending.first, count, BYTES_A_BATCH)
            if not pieces:
                return None
            records = [record for piece in pieces for record in whole_records(piece.records)]
            end = pending.first + len(records)
            self._append(pending, end, records)
            return end
        except OffsetOutOfRangeError as gone:
            return self._give_up(pending, gone.first_offset, gone)
        except CorruptionError as damage:
            return self._give_up(pending, damage.next_offset or pending.end, damage)
        except EngineError as error:
            log.warning("topic=%s queue=%d: dead letters wait: %s", cursor.topic_name, cursor.queue, error)
            return None

    def _append(self, pending: PendingDeadLetters, end: int, records: list[bytes]) -> None:
        topic_name = dead_letter_topic(pending.cursor.group.name)
        queue = self._ownership.nearest(topic_name, 0, QUEUES_MAX)
        if queue is None:
            raise EngineError("the configuration has not told yet which queues live here")
        (topic,) = self._store.create_topics([(topic_name, queue + 1)])
        letters = [
            dead_letter.bury(record, topic_name, self._told(pending, pending.first + at, record))
            for at, record in enumerate(map(dead_letter.parse, records))
        ]
        batch = pack_batch(KIND_MESSAGES, topic.id, queue, letters)
        ((code, _),) = self._store.append(batch, 1, self._lease_clock.wall_ms())
        if code:
            raise EngineError(f"the log refused a batch of {len(batch)} bytes with code {code}")
        if self.requests is not None:
            for record in records:
                self.requests.failed(pending.cursor.group.name, record)
        first = pending.first
        self._store.when_durable(self._store.end_position, lambda: self._settle(pending, first, end))

    def _told(self, pending: PendingDeadLetters, offset: int, record: dead_letter.StoredMessage) -> dict[str, object]:
        cursor = pending.cursor
        return {
            "group": cursor.group.name,
            "cause": pending.cause,
            "reason": pending.reason or None,
            "attempts": pending.attempts,
            "first_ms": LeaseClock.born_ms(pending.first_lease) or None,
            "last_ms": LeaseClock.born_ms(pending.last_lease) or None,
            "topic": cursor.topic_name,
            "queue": cursor.queue,
            "offset": offset,
            "id": record.id or None,
        }

    def _settle(self, pending: PendingDeadLetters, first: int, end: int) -> None:
        cursor = pending.cursor
        cursor.settle(first, end, pending.claim, False)
        self._counts.dead_letters += end - first
        self._dirty.add(cursor)
        if cursor.blocked:
            self._wake_list.wake(cursor)

    def _give_up(self, pending: PendingDeadLetters, gone_until: int, why: EngineError) -> int:
        """Retention or damage took the messages from everybody: nothing is left to be buried."""
        end = min(max(gone_until, pending.first + 1), pending.end)
        log.error(
            "topic=%s queue=%d offsets %d to %d: lost before they became dead letters of group %s: %s",
            pending.cursor.topic_name, pending.cursor.queue, pending.first, end - 1, pending.cursor.group.name, why,
        )  # fmt: skip
        pending.cursor.settle(pending.first, end, pending.claim, False)
        self._dirty.add(pending.cursor)
        return end
