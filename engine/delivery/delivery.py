"""Delivery: answers pulls, applies acknowledgements, keeps progress. Composition of the pure parts of this package.

Nothing here blocks or uses sockets. Cost follows calls and ranges of messages, never messages or the number of topics.
"""

from collections.abc import Callable
from random import random
from time import monotonic_ns

from common.timer_heap import TimerHeap
from engine.delivery import leases, progress
from engine.delivery.counts import DeliveryCounts
from engine.delivery.creations import GROUP, NO_LIMITS, Creations
from engine.delivery.dead_lettering import DeadLettering
from engine.delivery.group import Group
from engine.delivery.leases import LeaseClock
from engine.delivery.native import FORM, DeliveryForm
from engine.delivery.policy import DEFAULTS, Policies
from engine.delivery.ports import RequestJudge
from engine.delivery.progress_writer import ProgressWriter, kept
from engine.delivery.pull import AckRange, Pull, PullRequest
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.queue_ownership import QueueOwnership
from engine.delivery.reply_window import ReplyWindow
from engine.delivery.settings import DeliverySettings
from engine.delivery.subscription import Subscription
from engine.delivery.topic_changes import TopicChanges
from engine.delivery.withheld import WithheldBound
from engine.errors import EngineError, GroupUnreadError
from engine.log.port import DeliveryLog


class Delivery:
    """All groups of one engine.

    Args:
        store: the log, or its equivalent in memory.
        key: secret of all receipts, see `receipt_key()`.
        wall_ms: the wall clock, for lease numbers.
        form: the hot parts, native or reference; tests use both.
        policies: the configured policy of each group.
        random: returns 0 to 1, for the jitter of back-offs.
        ownership: the queues of this engine.
        requests: the judge of requests (engine/replies); None: every message is dispatched as it is.
        now_ns: monotonic clock that bounds the time of slow reads.
        creations: counts new groups and topics per application.

    Every `now_ms` is of a monotonic clock.
    """

    def __init__(
        self,
        store: DeliveryLog,
        key: bytes,
        wall_ms: Callable[[], int],
        settings: DeliverySettings | None = None,
        form: DeliveryForm = FORM,
        policies: Policies = DEFAULTS,
        random: Callable[[], float] = random,
        ownership: QueueOwnership | None = None,
        requests: RequestJudge | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
        creations: Creations | None = None,
    ) -> None:
        self.ownership = ownership or QueueOwnership()
        self.creations = creations or Creations(store, NO_LIMITS)
        self.settings = settings or DeliverySettings()
        self.counts = DeliveryCounts()
        self.groups: dict[str, Group] = {}
        self.parked = 0
        self.requests = requests
        self._followed = -1  # generation of the policies that all groups have adopted
        self._store, self._key, self._form, self._policies = store, key, form, policies
        self._lease_clock = LeaseClock(wall_ms, kept(store, leases.KEY), store.since_leases_ms())
        self._progress = ProgressWriter(store, self._lease_clock)
        self._dirty = self._progress.dirty
        self._dispatcher = form.Dispatcher(
            store, self.settings, self._lease_clock, self._dirty, self.counts, requests, now_ns
        )
        self._wake_list = form.WakeList()
        self._dead_lettering = DeadLettering(
            store, self._lease_clock, self._dirty, self.counts, self._wake_list, self.ownership, requests
        )
        self._withheld = WithheldBound(self.settings, self._wake_list)
        self._acknowledgements = form.Acknowledgements(
            store, self.settings, self._lease_clock, self._dirty, self.counts, self._wake_list,
            self._dead_lettering, random, self._withheld,
        )  # fmt: skip
        self._waits, self._no_limit = TimerHeap(), form.ReplyWindow()
        self._by_queue: dict[tuple[int, int], list[QueueCursor]] = {}
        self.topic_changes = TopicChanges(store, self.groups, self._lease_clock, self._wake_list, self._progress.drop)

    # -- for consumers

    def pull(
        self, request: PullRequest, now_ms: int, answer: Callable[[Pull], None], window: ReplyWindow | None = None
    ) -> Pull:
        """Apply the acknowledgements, then find messages or wait for them.

        `answer(pull)` is called once, perhaps inside this call. The acknowledgements count even if the answer is lost.
        `window`: of the link that takes the answer, of this form's class; None: no limit.
        """
        self.counts.pulls += 1
        self._lease_clock.now_ms = now_ms
        pull: Pull = self._form.Pull(answer, window or self._no_limit)
        group = self.group(request.group, request)
        subscription: Subscription | None = None
        refused: EngineError | None = None
        if group.policy.unread and request.max_messages > 0:
            refused = GroupUnreadError(group.name, group.policy.unread)  # not even its start in a new queue is known
        elif request.topics:
            try:
                subscription = pull.subscription = group.subscription(request)
            except EngineError as error:
                refused = error  # a topic that cannot be created does not refuse the acknowledgements
        if request.acks:
            self._acknowledge(pull, group, request.acks, now_ms)
        if refused is not None and not (request.acks and group.policy.unread):
            raise refused
        if subscription is None or request.max_messages <= 0:
            return self._answer_empty(pull, group)
        pull.bound(request, self.settings)
        pull.group = group
        may_fill = subscription.ring and not subscription.parked and not group.policy.paused
        if may_fill and pull.allow(not pull.window.waiting):
            self._dispatcher.fill(pull, group, now_ms)
        if group.changed:
            self._progress.write_at_once(group.changed)
        wait_ms = min(request.wait_ms, self.settings.wait_ms_max)
        if pull.piece_count or self.parked >= self.settings.parked_max:
            answer(pull)
        elif wait_ms > 0 or (wait_ms := self._least_wait_ms(pull)):
            self._park(pull, now_ms + wait_ms)
        else:
            answer(pull)
        return pull

    @staticmethod
    def is_at_bound(pull: Pull) -> bool:
        """Whether an empty answer is empty because the group holds as many messages as it may."""
        return pull.group is not None and any(
            cursor.blocked and cursor.is_at_bound for cursor in pull.subscription.cursors
        )

    def cancel(self, pull: Pull) -> None:
        """Forget a waiting pull whose caller is gone; nothing will be leased to it."""
        if pull.tick:
            self._unpark(pull)

    def release(self, group: str, ranges: list[AckRange], now_ms: int) -> None:
        """Give back messages of an answer that no consumer can have received: their delivery was no attempt."""
        self._lease_clock.now_ms = now_ms
        self._acknowledgements.apply(self.group(group), ranges, now_ms)
        self._serve_woken(now_ms)

    # -- for the server's loop

    def on_woken(self, woken: list[tuple[int, int]], now_ms: int) -> None:
        """Serve the pulls that wait for these queues, which have new records."""
        self._lease_clock.now_ms = now_ms
        if self.topic_changes.sparse:
            self.topic_changes.make_cursors(woken)
        self._wake_list.wake_all(woken, self._by_queue)
        self._serve_woken(now_ms)

    def on_room(self, window: ReplyWindow, now_ms: int) -> None:
        """Serve the pulls that wait for room in the window, the longest wait first."""
        while window.waiting:
            pull = next(iter(window.waiting))
            if pull.subscription.ring and not pull.group.policy.paused:
                if pull.allow(is_first=True):
                    self._fill(pull, now_ms)
                if pull.is_short:
                    return
            if pull.piece_count:
                self._unpark(pull)
                pull.answer(pull)
            else:
                del window.waiting[pull]
                pull.subscription.parked[pull] = None

    def on_time(self, now_ms: int) -> int | None:
        """Do the due work; returns the latest time of the next call, None when no work has a due time."""
        self._lease_clock.turn(now_ms)
        for cursor in self._lease_clock.expire(now_ms):
            self._follow(cursor.group)
            self._dead_lettering.claim_spent(cursor)
            self._wake_list.wake(cursor)
        self._follow_all(now_ms)
        dead_lettering_at = self._dead_lettering.step(now_ms)
        self._withheld.step(now_ms)
        moving_at = self.topic_changes.step(now_ms)
        self._resume_filtering()
        self._serve_woken(now_ms)
        for pull in self._waits.pop_due(now_ms):
            self._unpark(pull)
            pull.answer(pull)
        filtering_at = now_ms if self._dispatcher.later else None
        waits = (each.next_at_ms() for each in (self._lease_clock, self._waits, self._withheld))
        times = (*waits, dead_lettering_at, filtering_at, moving_at)
        return min((at for at in times if at is not None), default=None)

    @property
    def has_progress(self) -> bool:
        """Whether write_progress() has anything to write."""
        return self._progress.has_news

    def write_progress(
        self, cursors_max: int | None = None, *, now_ms: int | None = None, is_final: bool = False
    ) -> bool:
        """Write the progress of all changed cursors into the log, and the state of the lease clock.

        Args:
            cursors_max: limit per call, so that the loop turns in between; call again until it returns True.
            is_final: nothing will be leased any more.
        """
        return self._progress.write(cursors_max, now_ms, is_final=is_final)

    # -- for operators

    def group(self, name: str, request: PullRequest | None = None) -> Group:
        """Return the group of that name; creates it when it is new.

        Args:
            request: a pull that creates it, for its application. Raises QuotaError when that may create no more.
        """
        found = self.groups.get(name)
        if found is None:
            if request is not None and request.max_messages > 0 and not progress.is_kept(self._store, name):
                self.creations.admit(GROUP, [name], request.application)
            found = self.groups[name] = Group(
                name, self._key, self._store, self.settings, self._by_queue, self._resume,
                self.topic_changes.on_moving, self.creations, self.topic_changes.sparse, self._form,
            )  # fmt: skip
        found.used_ms = self._lease_clock.now_ms
        self._follow(found)
        return found

    def unload(self, group: Group) -> bool:
        """Remove a group from memory; False while it is in use or its progress is not in the log."""
        if not group.is_idle or self._progress.is_due(group.topics.values()):
            return False
        for cursor in group.leave():
            self._lease_clock.forget(cursor)
        self._dispatcher.shared.forget(group.name)
        del self.groups[group.name]
        if not progress.is_kept(self._store, group.name):
            self.creations.forget(GROUP, group.name)
        return True

    def move(self, group: Group, cursor: QueueCursor, offset: int, now_ms: int) -> None:
        """Reset the group to `offset`, within the readable range. All its receipts of that queue become stale."""
        first_offset, end_offset = self._store.bounds(cursor.topic_id, cursor.queue)
        growths = group.moves.read(cursor.topic_id, group.policy.order)
        cursor.move(min(max(offset, first_offset), end_offset), self._lease_clock.next_lease())
        self._dirty[cursor] = None
        group.moves.follow(cursor.topic_id, growths)
        self._wake_list.wake(cursor)
        self._serve_woken(now_ms)

    # -- for the dead-letter store

    def next_lease(self) -> int:
        """Return a new non-expiring internal lease."""
        return self._lease_clock.next_lease()

    def wall_ms(self) -> int:
        """Return the wall clock."""
        return self._lease_clock.wall_ms()

    def on_moved(self, cursor: QueueCursor) -> None:
        """Note that the cursor has changed and may have room again."""
        self._dirty[cursor] = None
        if cursor.blocked:
            self._wake_list.wake(cursor)

    # -- internal

    def _least_wait_ms(self, pull: Pull) -> int:
        """Time for which a pull waits that found no messages and asks not to wait.

        An empty answer means that the queues are empty; a consumer that drains them without waiting would stop.
        """
        if self._may_find_more(pull.subscription):
            return self.settings.fetch_wait_ms
        return self.settings.room_wait_ms if pull.is_short else 0

    def _acknowledge(self, pull: Pull, group: Group, acks: list[AckRange], now_ms: int) -> None:
        pull.ack_codes = self._acknowledgements.apply(group, acks, now_ms)
        if self._dead_lettering.pending:
            self._dead_lettering.step(now_ms)
        self._serve_woken(now_ms)

    def _answer_empty(self, pull: Pull, group: Group) -> Pull:
        """Answer a pull that wants no messages."""
        if group.changed:
            self._progress.write_at_once(group.changed)
        pull.answer(pull)
        if not group.topics:
            self.unload(group)  # it has no queue: group names that consumers make up cost no memory
        return pull

    def _follow(self, group: Group) -> None:
        """Apply the configured policy to the group."""
        if group.generation != self._policies.generation:
            before = group.filters
            for cursor in group.follow(self._policies.generation, self._policies.of(group.name)):
                self._postpone_spent(cursor)
                self._wake_list.wake(cursor)
            if group.filters is not before:
                self._dispatcher.shared.forget(group.name)

    def _resume_filtering(self) -> None:
        for cursor in self._dispatcher.later:
            self._wake_list.wake(cursor)
        self._dispatcher.later.clear()

    def _follow_all(self, now_ms: int) -> None:
        """After a change of configuration, answer the waiting pulls of paused groups; serve those of the others."""
        generation = self._policies.generation
        if generation == self._followed:
            return
        self._followed = generation
        for group in self.groups.values():
            self._follow(group)
            for subscription in group.waiting():
                if not group.policy.paused:
                    self._serve(subscription, now_ms)
                for pull in list(subscription.parked) if group.policy.paused else ():
                    self._unpark(pull)
                    pull.answer(pull)
        if any(group.generation != generation for group in self.groups.values()):
            self._followed = -1  # a group follows it later

    def _resume(self, cursor: QueueCursor, stored: bytes) -> None:
        """Load stored progress: leases that run go on, and new ones have numbers above all that it names."""
        clock = self._lease_clock
        clock.start_above(cursor.resume(stored, clock.base_ms))
        if (soonest_ms := cursor.in_flight.expire(clock.now_ms)) is not None:
            clock.due(cursor, soonest_ms)
        self._postpone_spent(cursor)  # those, too, whose lease has ended before
        self._withheld.note(cursor)

    def _postpone_spent(self, cursor: QueueCursor) -> None:
        """Give last attempts that have ended a full lease time from now: their holders may still acknowledge.

        Withheld ones were given back and are dead-lettered.
        """
        if cursor.in_flight.withheld:
            self._dead_lettering.claim_withheld(cursor)
        due_ms = self._lease_clock.now_ms + cursor.group.policy.invisible_ms
        if cursor.in_flight.postpone_spent(cursor.attempts_max, due_ms):
            self._lease_clock.due(cursor, due_ms)

    def _may_find_more(self, subscription: Subscription) -> bool:
        """Whether records of the subscription are being fetched or still wait for a filter."""
        if self._dispatcher.later and not self._dispatcher.later.keys().isdisjoint(subscription.cursors):
            return True
        return any(self._store.is_fetching(cursor.topic_id, cursor.queue) for cursor in subscription.cursors)

    def _park(self, pull: Pull, until_ms: int) -> None:
        if pull.group.policy.paused:
            self._follow_all(self._lease_clock.now_ms)  # answers those that waited before the pause, and not this one
        (pull.window.waiting if pull.is_short else pull.subscription.parked)[pull] = None
        pull.tick = self._waits.schedule(until_ms, pull)
        self.parked += 1

    def _unpark(self, pull: Pull) -> None:
        self._waits.cancel(pull.tick, pull)
        pull.tick = 0
        pull.subscription.parked.pop(pull, None)
        if pull.window.waiting:
            pull.window.waiting.pop(pull, None)
        self.parked -= 1

    def _fill(self, pull: Pull, now_ms: int) -> None:
        """Fill a pull that has waited."""
        self._dispatcher.fill(pull, pull.group, now_ms)
        if pull.group.changed:
            self._progress.write_at_once(pull.group.changed)

    def _serve_woken(self, now_ms: int) -> None:
        while (subscription := self._wake_list.pop()) is not None:
            self._serve(subscription, now_ms)

    def _serve(self, subscription: Subscription, now_ms: int) -> None:
        while subscription.parked and subscription.ring:
            pull = next(iter(subscription.parked))
            if pull.group.policy.paused:
                return
            if pull.allow(not pull.window.waiting):
                self._fill(pull, now_ms)
            if pull.piece_count:
                self._unpark(pull)
                pull.answer(pull)
            elif pull.is_short:
                del subscription.parked[pull]
                pull.window.waiting[pull] = None
