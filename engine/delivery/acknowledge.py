"""Taking acknowledgements: is the receipt ours, whose messages are they, what becomes of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from common.dead_letters import ATTEMPTS, REJECTED
from engine.delivery.counts import Counts
from engine.delivery.dead_lettering import Burials
from engine.delivery.leases import Clockwork
from engine.delivery.pull import Ack
from engine.delivery.queue_cursor import Place
from engine.delivery.settings import DeliverySettings
from engine.delivery.subscription import Hungry
from engine.link.layout import DONE, EXTEND, INVALID, OK, REJECT, RETRY, STALE_RECEIPT

if TYPE_CHECKING:
    from engine.delivery.group import Group


class Acknowledgements:
    """Applies what consumers say of what they were given.

    Args:
        store: the log; asked only about receipts from before a restart.
        dirty: places whose progress has to be written.
        hungry: told of places that have something to hand out again.
        burials: gets what nobody is to be given again.
        random: gives 0 to 1, for the jitter of back-offs.
    """

    def __init__(
        self, store, settings: DeliverySettings, clockwork: Clockwork, dirty: set[Place], counts: Counts,
        hungry: Hungry, burials: Burials, random: Callable[[], float],
    ) -> None:  # fmt: skip
        self._store, self._settings, self._clockwork = store, settings, clockwork
        self._dirty, self._counts, self._hungry = dirty, counts, hungry
        self._burials, self._random = burials, random

    def take(self, group: "Group", acks: list[Ack], now_ms: int) -> list[int]:
        """Apply each; returns their codes in order."""
        return [self.take_one(group, ack, now_ms) for ack in acks]

    def take_one(self, group: "Group", ack: Ack, now_ms: int) -> int:
        """Apply one; returns its code."""
        token = group.receipts.check(ack.token)
        if token is None or ack.count < 1 or ack.first + ack.count > token.count:
            self._counts.stale_receipts += 1
            return STALE_RECEIPT
        if not DONE <= ack.verdict <= EXTEND or ack.delay_ms < -1:
            return INVALID
        place = group.find(token.topic_hash, token.queue)
        if place is not None and place.is_dead_letters and ack.verdict == REJECT:
            return INVALID  # there is nowhere to put it
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
        elif ack.verdict == EXTEND:
            counted = (
                self._hold(place, first, end, token.lease, foreign, self._extension_ms(place, ack), now_ms) == ack.count
            )
        else:
            counted = self._refuse(place, first, end, token.lease, foreign, ack, now_ms) == ack.count
        if place.blocked or ack.verdict == RETRY:
            self._hungry.wake(place)
        return counted

    def _refuse(self, place: Place, first: int, end: int, lease: int, foreign: bool, ack: Ack, now_ms: int) -> int:
        """RETRY and REJECT: bury what gets no further attempt, let the rest wait for its next one. Returns how many messages that are."""
        attempt_min = 0 if ack.verdict == REJECT else place.attempts_max
        claim = self._clockwork.next_lease()
        claimed = place.claim(first, end, lease, foreign, attempt_min, claim)
        if claimed:
            cause = REJECTED if ack.verdict == REJECT else ATTEMPTS
            self._burials.add(place, claimed, claim, cause, ack.reason.decode(errors="replace"))
        counted = sum(run.end - run.first for run in claimed)
        if ack.verdict == RETRY and counted < ack.count:
            delay_ms = ack.delay_ms
            if delay_ms < 0:
                attempt = place.open.attempt_of(first, end, lease, foreign)
                delay_ms = place.group.policy.retry.delay_ms(max(attempt, 1), self._random)
            counted += self._hold(place, first, end, lease, foreign, delay_ms, now_ms)
        return counted

    def _hold(self, place: Place, first: int, end: int, lease: int, foreign: bool, delay_ms: int, now_ms: int) -> int:
        due_ms = now_ms + min(delay_ms, self._settings.invisible_ms_max)
        held = place.hold(first, end, lease, foreign, due_ms, now_ms)
        if held:
            self._clockwork.due(place, due_ms)
        return held

    @staticmethod
    def _extension_ms(place: Place, ack: Ack) -> int:
        return ack.delay_ms if ack.delay_ms >= 0 else place.group.policy.invisible_ms
