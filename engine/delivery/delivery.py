"""Delivery: answers pulls, applies acknowledgements, keeps progress. Composition of the pure parts of this package.

Nothing here blocks or uses sockets; the server calls it from the loop and passes the time. Cost follows calls and
ranges of messages, never single messages or the number of topics.
"""

from collections.abc import Callable
from random import random
from time import monotonic_ns

from common.dead_letters import ATTEMPTS
from common.timer_heap import TimerHeap
from engine.delivery import progress
from engine.delivery.counts import DeliveryCounts
from engine.delivery.dead_lettering import DeadLettering
from engine.delivery.group import Group
from engine.delivery.leases import LeaseClock
from engine.delivery.native import FORM, DeliveryForm
from engine.delivery.policy import DEFAULTS, Policies
from engine.delivery.ports import RequestJudge
from engine.delivery.pull import Pull, PullRequest
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.queue_ownership import QueueOwnership
from engine.delivery.receipt import KEY_SIZE
from engine.delivery.settings import DeliverySettings
from engine.delivery.subscription import Subscription
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
    ) -> None:
        self.ownership = ownership or QueueOwnership()
        self.settings = settings or DeliverySettings()
        self.counts = DeliveryCounts()
        self.groups: dict[str, Group] = {}
        self.parked = 0
        self.requests = requests
        self._followed = -1  # generation of the policies that all groups have adopted
        self._store, self._key, self._form, self._policies = store, key, form, policies
        self._lease_clock = LeaseClock(wall_ms)
        self._dirty: set[QueueCursor] = set()
        self._due_progress: list[QueueCursor] = []  # cursors that were dirty when writing began
        self._dispatcher = form.Dispatcher(
            store, self.settings, self._lease_clock, self._dirty, self.counts, requests, now_ns
        )
        self._wake_list = form.WakeList()
        self._dead_lettering = DeadLettering(
            store, self._lease_clock, self._dirty, self.counts, self._wake_list, self.ownership, requests
        )
        self._acknowledgements = form.Acknowledgements(
            store,
            self.settings,
            self._lease_clock,
            self._dirty,
            self.counts,
            self._wake_list,
            self._dead_lettering,
            random,
        )
        self._waits = TimerHeap()
        self._by_queue: dict[tuple[int, int], list[QueueCursor]] = {}

    # -- for consumers

    def pull(self, request: PullRequest, now_ms: int, answer: Callable[[Pull], None], context: object = None) -> Pull:
        """Apply the acknowledgements, then find messages or wait for them.

        `answer(pull)` is called once, perhaps inside this call. The acknowledgements count even if the answer is lost.
        """
        self.counts.pulls += 1
        self._lease_clock.now_ms = now_ms
        pull = Pull(answer, context)
        group = self.group(request.group)
        if request.topics:
            pull.subscription = group.subscription(request.topics_key, request.topics, request.start)
        if request.acks:
            pull.ack_codes = self._acknowledgements.apply(group, request.acks, now_ms)
            if self._dead_lettering:
                self._dead_lettering.step(now_ms)
            self._serve_woken(now_ms)
        if pull.subscription is None or request.max_messages <= 0:
            answer(pull)
            return pull
        self._bound(pull, request)
        pull.group = group
        if not pull.subscription.parked and not group.policy.paused:
            self._dispatcher.fill(pull, group, now_ms)
        wait_ms = min(request.wait_ms, self.settings.wait_ms_max)
        if wait_ms <= 0 and not pull.piece_count and self._may_find_more(pull.subscription):
            # An empty answer means that the queues are empty; a consumer that drains them without waiting would stop.
            wait_ms = self.settings.fetch_wait_ms
        if pull.piece_count or wait_ms <= 0 or self.parked >= self.settings.parked_max:
            answer(pull)
        else:
            self._park(pull, now_ms + wait_ms)
        return pull

    def cancel(self, pull: Pull) -> None:
        """Forget a waiting pull whose caller is gone; nothing will be leased to it."""
        if pull.tick:
            self._unpark(pull)

    # -- for the server's loop

    def on_woken(self, woken: list[tuple[int, int]], now_ms: int) -> None:
        """Serve the pulls that wait for these queues, which have new records."""
        self._wake_list.wake_all(woken, self._by_queue)
        self._serve_woken(now_ms)

    def on_time(self, now_ms: int) -> int | None:
        """Do the due work; returns the latest time of the next call, None when no work has a due time."""
        self._lease_clock.now_ms = now_ms
        for cursor in self._lease_clock.expire(now_ms):
            self._claim_spent(cursor)
            self._wake_list.wake(cursor)
        dead_lettering_at = self._dead_lettering.step(now_ms)
        self._follow_all(now_ms)
        self._resume_filtering()
        self._serve_woken(now_ms)
        for pull in self._waits.pop_due(now_ms):
            self._unpark(pull)
            pull.answer(pull)
        filtering_at = now_ms if self._dispatcher.later else None
        times = (self._lease_clock.next_at_ms(), self._waits.next_at_ms(), dead_lettering_at, filtering_at)
        return min((at for at in times if at is not None), default=None)

    @property
    def has_progress(self) -> bool:
        """Whether write_progress() has anything to write."""
        return bool(self._dirty or self._due_progress)

    def write_progress(self, cursors_max: int | None = None) -> bool:
        """Write the progress of all changed cursors into the log.

        Args:
            cursors_max: limit per call, so that the loop turns in between; call again until it returns True.
        """
        due = self._due_progress
        if not due:
            due.extend(self._dirty)
            self._dirty.clear()
        elif cursors_max is None:
            due.extend(self._dirty.difference(due))
            self._dirty.clear()
        step = due if cursors_max is None else due[-cursors_max:]
        if step:
            # Removed once they are in the log: after a full disk the next call tries again.
            self._store.put_progress([(cursor.key, cursor.encoded_progress()) for cursor in step])
            del due[-len(step) :]
        return not due

    # -- for operators

    def group(self, name: str) -> Group:
        """Return the group of that name; creates it when it is new."""
        found = self.groups.get(name)
        if found is None:
            found = self.groups[name] = Group(
                name, self._key, self._store, self.settings, self._by_queue, self._resumed, self._form
            )
        self._follow(found)
        return found

    def move(self, group: Group, cursor: QueueCursor, offset: int, now_ms: int) -> None:
        """Reset the group to `offset`, within the readable range. All its receipts of that queue become stale."""
        first_offset, end_offset = self._store.bounds(cursor.topic_id, cursor.queue)
        cursor.move(min(max(offset, first_offset), end_offset), self._lease_clock.next_lease())
        self._dirty.add(cursor)
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
        self._dirty.add(cursor)
        if cursor.blocked:
            self._wake_list.wake(cursor)

    # -- internal

    def _follow(self, group: Group) -> None:
        """Apply the configured policy to the group."""
        generation = self._policies.generation
        if group.generation != generation:
            before = group.filters
            for cursor in group.follow(generation, self._policies.of(group.name)):
                self._wake_list.wake(cursor)
            if group.filters is not before:
                self._dispatcher.shared.forget(group.name)

    def _resume_filtering(self) -> None:
        later = list(self._dispatcher.later)
        self._dispatcher.later.clear()
        for cursor in later:
            self._wake_list.wake(cursor)

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

    def _claim_spent(self, cursor: QueueCursor) -> None:
        """Dead-letter messages whose last attempt has expired."""
        self._follow(cursor.group)
        claim = self._lease_clock.next_lease()
        claimed = cursor.in_flight.claim_spent(cursor.attempts_max, claim)
        if claimed:
            self._dirty.add(cursor)
            self._dead_lettering.enqueue(cursor, claimed, claim, ATTEMPTS, "")

    def _resumed(self, cursor: QueueCursor) -> None:
        """Give last attempts from before a restart a full lease time from now: their holders may still acknowledge."""
        due_ms = self._lease_clock.now_ms + cursor.group.policy.invisible_ms
        if cursor.in_flight.postpone_spent(cursor.attempts_max, due_ms):
            self._lease_clock.due(cursor, due_ms)

    def _bound(self, pull: Pull, request: PullRequest) -> None:
        settings = self.settings
        pull.messages_left = min(request.max_messages, settings.pull_messages_max)
        wanted = request.max_bytes if request.max_bytes > 0 else settings.pull_bytes_default
        pull.bytes_left = min(wanted, settings.pull_bytes_max)
        wanted = request.invisible_ms if request.invisible_ms > 0 else settings.invisible_ms_default
        pull.invisible_ms = min(wanted, settings.invisible_ms_max)

    def _may_find_more(self, subscription: Subscription) -> bool:
        """Whether records of the subscription are being fetched or still wait for a filter."""
        if self._dispatcher.later and not self._dispatcher.later.keys().isdisjoint(subscription.cursors):
            return True
        return any(self._store.is_fetching(cursor.topic_id, cursor.queue) for cursor in subscription.cursors)

    def _park(self, pull: Pull, until_ms: int) -> None:
        pull.subscription.parked[pull] = None
        pull.tick = self._waits.schedule(until_ms, pull)
        self.parked += 1

    def _unpark(self, pull: Pull) -> None:
        self._waits.cancel(pull.tick, pull)
        pull.tick = 0
        pull.subscription.parked.pop(pull, None)
        self.parked -= 1

    def _serve_woken(self, now_ms: int) -> None:
        while (subscription := self._wake_list.pop()) is not None:
            self._serve(subscription, now_ms)

    def _serve(self, subscription: Subscription, now_ms: int) -> None:
        while subscription.parked and subscription.ring:
            pull = next(iter(subscription.parked))
            if pull.group.policy.paused:
                return
            self._dispatcher.fill(pull, pull.group, now_ms)
            if pull.piece_count:
                self._unpark(pull)
                pull.answer(pull)


def receipt_key(store: DeliveryLog, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return the secret of all receipts: created once and kept in the log, so it survives restarts and fail-over."""
    for raw, value in store.progress(progress.RECEIPT_KEY):
        if raw == progress.RECEIPT_KEY and len(value) == KEY_SIZE:
            return value
    made = random_bytes(KEY_SIZE)
    store.put_progress([(progress.RECEIPT_KEY, made)])
    return made
