"""Acknowledgements: checks each receipt and settles, extends, retries, releases or dead-letters its messages."""

from collections.abc import Callable

from common.dead_letters import ATTEMPTS, REJECTED
from engine.delivery.counts import DeliveryCounts
from engine.delivery.dead_lettering import DeadLettering
from engine.delivery.group_view import GroupView
from engine.delivery.leases import LeaseClock
from engine.delivery.pull import AckRange
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.receipt import ReceiptToken
from engine.delivery.settings import DeliverySettings
from engine.delivery.subscription import WakeList
from engine.delivery.withheld import WithheldBound
from engine.link.acknowledgement import DONE, EXTEND, REJECT, RELEASE, RETRY
from engine.link.codes import INVALID, OK, STALE_RECEIPT, UNAVAILABLE
from engine.log.port import DeliveryLog


class Acknowledgements:
    """Applies acknowledgements to the cursors of groups.

    Args:
        store: asked only about receipts from before a restart.
        dirty: cursors whose progress has to be written.
        wake_list: gets cursors that may dispatch again.
        dead_lettering: gets messages without a further attempt.
        random: returns 0 to 1, for the jitter of back-offs.
        withheld: told of cursors that withhold messages.
    """

    def __init__(
        self, store: DeliveryLog, settings: DeliverySettings, lease_clock: LeaseClock,
        dirty: dict[QueueCursor, None], counts: DeliveryCounts,
        wake_list: WakeList, dead_lettering: DeadLettering, random: Callable[[], float],
        withheld: WithheldBound,
    ) -> None:  # fmt: skip
        self._store, self._settings, self._lease_clock = store, settings, lease_clock
        self._dirty, self._counts, self._wake_list = dirty, counts, wake_list
        self._dead_lettering, self._random, self._withheld = dead_lettering, random, withheld

    def apply(self, group: GroupView, acks: list[AckRange], now_ms: int) -> list[int]:
        """Apply all; returns their codes in order."""
        return [self.apply_one(group, ack, now_ms) for ack in acks]

    def apply_one(self, group: GroupView, ack: AckRange, now_ms: int) -> int:
        """Apply one; returns its code."""
        token = group.receipts.check(ack.token)
        if token is None or ack.count < 1 or ack.first + ack.count > token.count:
            self._counts.stale_receipts += 1
            return STALE_RECEIPT
        if not DONE <= ack.verdict <= RELEASE or ack.delay_ms < -1:
            return INVALID
        if ack.verdict == EXTEND and ack.delay_ms > self._settings.invisible_ms_max:
            return INVALID
        cursor = group.find(token.topic_hash, token.queue)
        if cursor is not None and cursor.is_dead_letters and ack.verdict == REJECT:
            return INVALID  # a dead letter has no dead-letter topic
        if cursor is None and group.policy.unread:
            return UNAVAILABLE  # a killed process may have given this lease: it is known once the topic is loaded
        if cursor is None or not self._apply(cursor, token, ack, now_ms):
            self._counts.stale_receipts += 1
            return STALE_RECEIPT
        self._counts.acks += ack.count
        return OK

    def _apply(self, cursor: QueueCursor, token: ReceiptToken, ack: AckRange, now_ms: int) -> bool:
        first = token.base_offset + ack.first
        end = first + ack.count
        foreign = self._lease_clock.is_foreign(token.lease)
        if foreign and not cursor.is_certain(first, end, token.lease):
            stored_until_ms = self._lease_clock.stored_until_ms(token.lease)
            if end > self._store.offset_at_time(cursor.topic_id, cursor.queue, stored_until_ms):
                return False
        self._dirty[cursor] = None
        if ack.verdict == DONE:
            counted = cursor.settle(first, end, token.lease, foreign)
        elif ack.verdict == EXTEND:
            counted = (
                self._hold(cursor, first, end, token.lease, foreign, self._extension_ms(cursor, ack), now_ms, False)
                == ack.count
            )
        elif ack.verdict == RELEASE:
            released = cursor.release(first, end, token.lease, foreign)
            self._counts.released += released
            counted = released == ack.count
        else:
            counted = self._refuse(cursor, first, end, token.lease, foreign, ack, now_ms) == ack.count
        if cursor.blocked or ack.verdict in (RETRY, RELEASE):
            self._wake_list.wake(cursor)
        return counted

    def _refuse(
        self, cursor: QueueCursor, first: int, end: int, lease: int, foreign: bool, ack: AckRange, now_ms: int
    ) -> int:
        """Apply RETRY or REJECT: dead-letter messages without a further attempt, back off the others.

        Returns their number.
        """
        attempt_min = 0 if ack.verdict == REJECT else cursor.attempts_max
        claim = self._lease_clock.next_lease()
        claimed = cursor.claim(first, end, lease, foreign, attempt_min, claim)
        if claimed:
            cause = REJECTED if ack.verdict == REJECT else ATTEMPTS
            self._dead_lettering.enqueue(cursor, claimed, claim, cause, ack.reason.decode(errors="replace"))
        counted = sum(each.end - each.first for each in claimed)
        if ack.verdict == RETRY and counted < ack.count:
            delay_ms = ack.delay_ms
            if delay_ms < 0:
                attempt = cursor.in_flight.attempt_of(first, end, lease, foreign)
                delay_ms = cursor.group.policy.retry.delay_ms(max(attempt, 1), self._random)
            counted += self._hold(cursor, first, end, lease, foreign, delay_ms, now_ms, True)
            self._withheld.note(cursor)
        return counted

    def _hold(
        self, cursor: QueueCursor, first: int, end: int, lease: int, foreign: bool, delay_ms: int, now_ms: int,
        withheld: bool,
    ) -> int:  # fmt: skip
        due_ms = now_ms + delay_ms
        held = cursor.hold(first, end, lease, foreign, due_ms, now_ms, withheld)
        if held:
            self._lease_clock.due(cursor, due_ms)
        return held

    @staticmethod
    def _extension_ms(cursor: QueueCursor, ack: AckRange) -> int:
        return ack.delay_ms if ack.delay_ms >= 0 else cursor.group.policy.invisible_ms
