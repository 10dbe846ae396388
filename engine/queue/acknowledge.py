"""Taking acknowledgements: is the receipt ours, whose messages are they, what becomes of them."""

from typing import TYPE_CHECKING

from engine.link.layout import DONE, EXTEND, INVALID, OK, RETRY, STALE_RECEIPT
from engine.queue.clockwork import Clockwork
from engine.queue.counts import Counts
from engine.queue.place import Place
from engine.queue.pull import Ack
from engine.queue.settings import DeliverySettings
from engine.queue.subscription import Hungry

if TYPE_CHECKING:
    from engine.queue.group import Group


class Acknowledgements:
    """Applies what consumers say of what they were given.

    Args:
        store: the log; asked only about receipts from before a restart.
        dirty: places whose progress has to be written.
        hungry: told of places that have something to hand out again.
    """

    def __init__(
        self, store, settings: DeliverySettings, clockwork: Clockwork, dirty: set[Place], counts: Counts, hungry: Hungry
    ) -> None:
        self._store, self._settings, self._clockwork = store, settings, clockwork
        self._dirty, self._counts, self._hungry = dirty, counts, hungry

    def take(self, group: "Group", acks: list[Ack], now_ms: int) -> list[int]:
        """Apply each; returns their codes in order."""
        return [self.take_one(group, ack, now_ms) for ack in acks]

    def take_one(self, group: "Group", ack: Ack, now_ms: int) -> int:
        """Apply one; returns its code."""
        token = group.receipts.check(ack.token)
        if token is None or ack.count < 1 or ack.first + ack.count > token.count:
            self._counts.stale_receipts += 1
            return STALE_RECEIPT
        if ack.verdict not in (DONE, RETRY, EXTEND) or ack.delay_ms < -1:
            return INVALID
        place = group.find(token.topic_hash, token.queue)
        if place is None or not self._apply(place, token, ack, now_ms):
            self._counts.stale_receipts += 1
            return STALE_RECEIPT
        self._counts.acks += ack.count
        return OK

    def _apply(self, place: Place, token, ack: Ack, now_ms: int) -> bool:
        first = token.base_offset + ack.first
        end = first + ack.count
        foreign = self._clockwork.is_foreign(token.lease)
        if foreign:
            moment = self._clockwork.stored_until_ms(token.lease)
            if end > self._store.offset_at_time(place.topic_id, place.queue, moment):
                return False
        self._dirty.add(place)
        if ack.verdict == DONE:
            counted = place.settle(first, end, token.lease, foreign)
        else:
            due_ms = now_ms + self._delay_ms(ack)
            counted = place.hold(first, end, token.lease, foreign, due_ms, now_ms)
            self._clockwork.due(place, due_ms)
        if place.blocked or ack.verdict == RETRY:
            self._hungry.wake(place)
        return counted

    def _delay_ms(self, ack: Ack) -> int:
        settings = self._settings
        if ack.verdict == EXTEND:
            return min(ack.delay_ms if ack.delay_ms >= 0 else settings.invisible_ms_default, settings.invisible_ms_max)
        return min(ack.delay_ms if ack.delay_ms >= 0 else settings.retry_delay_ms, settings.invisible_ms_max)
