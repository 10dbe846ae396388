"""Dead-lettering: moves messages without a further attempt to the dead-letter topic of their group.

A message is first claimed: it moves to a non-expiring internal lease. Then its dead letter is appended, and once that
is durable the message counts as done. After a crash in between the message is still open in the stored progress and is
dead-lettered again. So a message may get two dead letters, but never none.
"""

import logging
from collections import deque
from typing import NamedTuple

from common.dead_letters import ATTEMPTS, QUEUES_MAX, dead_letter_topic
from common.limited_log import LimitedLog
from engine.delivery import dead_letter
from engine.delivery.counts import DeliveryCounts
from engine.delivery.in_flight_range import InFlightRange
from engine.delivery.leases import LeaseClock
from engine.delivery.ports import RequestJudge
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.queue_ownership import QueueOwnership
from engine.delivery.subscription import WakeList
from engine.errors import CorruptionError, EngineError, OffsetOutOfRangeError
from engine.log.format import KIND_MESSAGES, pack_batch, whole_records
from engine.log.port import DeliveryLog

limited = LimitedLog(logging.getLogger(__name__))
MESSAGES_PER_STEP = 256
"""Dead letters per loop turn: a few milliseconds of work."""
BATCH_BYTES = 1 << 20
WITHHELD_PER_STEP = 1_024
"""Withheld ranges that are claimed at once when the maximum number of attempts falls."""
RETRY_MS = 500
"""Pause before the next try while the disk is full, or while the records are fetched from cold segments."""


class PendingDeadLetters(NamedTuple):
    """Claimed messages first..end of a cursor, all with one history. `claim`: the internal lease that holds them."""

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
    """Queue of claimed messages that are not yet durable as dead letters; `step()` appends a few.

    Args:
        dirty: cursors whose progress has to be written.
        wake_list: gets cursors that have room again.
        ownership: the queues that may hold this engine's dead letters.
        requests: told of each dead-lettered record; None: nothing waits for replies.

    Attributes:
        pending: what is claimed and not moved yet, oldest first.
    """

    def __init__(
        self,
        store: DeliveryLog,
        lease_clock: LeaseClock,
        dirty: dict[QueueCursor, None],
        counts: DeliveryCounts,
        wake_list: WakeList,
        ownership: QueueOwnership,
        requests: RequestJudge | None = None,
    ) -> None:
        self._store, self._lease_clock, self._ownership = store, lease_clock, ownership
        self._dirty, self._counts, self._wake_list = dirty, counts, wake_list
        self.requests = requests
        self.pending: deque[PendingDeadLetters] = deque()
        self._retry_at_ms = 0
        self._given_back: dict[QueueCursor, None] = {}  # may withhold messages that have used their attempts

    def claim_spent(self, cursor: QueueCursor) -> None:
        """Dead-letter messages whose last attempt has expired."""
        claim = self._lease_clock.next_lease()
        if claimed := cursor.in_flight.claim_spent(cursor.attempts_max, claim):
            self._dirty[cursor] = None
            self.enqueue(cursor, claimed, claim, ATTEMPTS, "")

    def claim_withheld(self, cursor: QueueCursor) -> None:
        """Dead-letter withheld messages that have used their attempts, some at each step: no consumer works at them."""
        self._given_back[cursor] = None

    def enqueue(self, cursor: QueueCursor, claimed: list[InFlightRange], claim: int, cause: str, reason: str) -> None:
        """Dead-letter the ranges that the lease `claim` has claimed."""
        for each in claimed:
            self.pending.append(
                PendingDeadLetters(
                    cursor, each.first, each.end, claim, each.attempt, each.first_lease, each.lease, cause, reason
                )
            )

    def step(self, now_ms: int) -> int | None:
        """Dead-letter some; returns the time of the next call, None when none are left."""
        left = MESSAGES_PER_STEP
        while self._given_back and not self.pending:
            self._claim_some()
        while self.pending and left > 0 and now_ms >= self._retry_at_ms:
            pending = self.pending.popleft()
            done = self._move(pending, left)
            if done is None:
                self.pending.append(pending)
                self._retry_at_ms = now_ms + RETRY_MS
                break
            if done < pending.end:
                self.pending.appendleft(pending._replace(first=done))
            left -= done - pending.first
        return max(now_ms, self._retry_at_ms) if self.pending or self._given_back else None

    def _claim_some(self) -> None:
        cursor = next(iter(self._given_back))
        claim = self._lease_clock.next_lease()
        claimed = cursor.in_flight.claim_withheld(cursor.attempts_max, claim, WITHHELD_PER_STEP)
        if claimed:
            self._dirty[cursor] = None
            self.enqueue(cursor, claimed, claim, ATTEMPTS, "")
        if len(claimed) < WITHHELD_PER_STEP:
            del self._given_back[cursor]

    def _move(self, pending: PendingDeadLetters, messages_max: int) -> int | None:
        """Append dead letters of the first messages; returns the offset after them, None when impossible now."""
        cursor = pending.cursor
        if pending.claim < cursor.floor:
            return pending.end  # an operator has reset the group: the reset decides about these messages
        try:
            count = min(pending.end - pending.first, messages_max)
            pieces = self._store.read(cursor.topic_id, cursor.queue, pending.first, count, BATCH_BYTES)
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
        except (EngineError, OSError) as error:
            limited.warning("topic=%s queue=%d: dead-lettering is delayed: %s", cursor.topic_name, cursor.queue, error)
            return None

    def _append(self, pending: PendingDeadLetters, end: int, records: list[bytes]) -> None:
        topic_name = dead_letter_topic(pending.cursor.group.name)
        queue = self._ownership.nearest(topic_name, 0, QUEUES_MAX)
        if queue is None:
            raise EngineError("the configuration has not been read yet: the owned queues are unknown")
        (topic,) = self._store.create_topics([(topic_name, queue + 1)])
        records_out = [
            dead_letter.wrap(record, topic_name, self._origin(pending, pending.first + at, record))
            for at, record in enumerate(map(dead_letter.parse, records))
        ]
        batch = pack_batch(KIND_MESSAGES, topic.id, queue, records_out)
        ((code, _),) = self._store.append(batch, 1, self._lease_clock.wall_ms())
        if code:
            raise EngineError(f"append of {len(batch)} bytes of dead letters: refused with code {code}")
        if self.requests is not None:
            for record in records:
                self.requests.failed(pending.cursor.group.name, record)
        first = pending.first
        self._store.when_durable(self._store.end_position, lambda: self._settle(pending, first, end))

    def _origin(self, pending: PendingDeadLetters, offset: int, record: dead_letter.StoredMessage) -> dict[str, object]:
        cursor = pending.cursor
        return {
            "group": cursor.group.name,
            "cause": pending.cause,
            "reason": pending.reason or None,
            "attempts": pending.attempts,
            "first_ms": self._lease_clock.created_ms(pending.first_lease) or None,
            "last_ms": self._lease_clock.created_ms(pending.last_lease) or None,
            "topic": cursor.topic_name,
            "queue": cursor.queue,
            "offset": offset,
            "id": record.id or None,
        }

    def _settle(self, pending: PendingDeadLetters, first: int, end: int) -> None:
        cursor = pending.cursor
        cursor.settle(first, end, pending.claim, False)
        self._counts.dead_letters += end - first
        self._dirty[cursor] = None
        if cursor.blocked:
            self._wake_list.wake(cursor)

    def _give_up(self, pending: PendingDeadLetters, gone_until: int, cause: EngineError) -> int:
        """Retention or damage has removed the messages: nothing is left to dead-letter."""
        end = min(max(gone_until, pending.first + 1), pending.end)
        limited.error(
            "topic=%s queue=%d offsets %d to %d: lost before dead-lettering for group %s: %s",
            pending.cursor.topic_name, pending.cursor.queue, pending.first, end - 1, pending.cursor.group.name, cause,
        )  # fmt: skip
        pending.cursor.settle(pending.first, end, pending.claim, False)
        self._dirty[pending.cursor] = None
        return end
