"""Delivery: pulls in, messages out, acknowledgements in. The composition of the pure parts of this package.

Nothing here blocks or knows sockets; the server calls it from the loop and tells the time. Cost follows calls and ranges
of messages, never single messages, and never the number of topics.
"""

from collections.abc import Callable
from random import random

from common.dead_letters import ATTEMPTS
from common.timer_heap import TimerHeap
from engine.delivery import progress
from engine.delivery.counts import DeliveryCounts
from engine.delivery.dead_lettering import DeadLettering
from engine.delivery.group import Group
from engine.delivery.leases import LeaseClock
from engine.delivery.native import FORM, DeliveryForm
from engine.delivery.policy import DEFAULTS, Policies
from engine.delivery.pull import Pull, PullRequest
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.queue_ownership import QueueOwnership
from engine.delivery.receipt import KEY_SIZE
from engine.delivery.settings import DeliverySettings
from engine.delivery.subscription import Subscription


class Delivery:
    """All groups of one engine.

    Args:
        store: the log (seam 6), or its twin in memory.
        key: the receipt key, see `receipt_key()`.
        wall_ms: the wall clock, of which lease numbers are made.
        form: the hot parts, compiled or their twins; tests give both.
        policies: what the configuration says of each group.
        random: gives 0 to 1, for the jitter of back-offs.
        ownership: which queues live at this engine.

    Every `now_ms` is a clock that never steps back.
    """

    def __init__(
        self,
        store,
        key: bytes,
        wall_ms: Callable[[], int],
        settings: DeliverySettings | None = None,
        form: DeliveryForm = FORM,
        policies: Policies = DEFAULTS,
        random: Callable[[], float] = random,
        ownership: QueueOwnership | None = None,
    ) -> None:
        self.ownership = ownership or QueueOwnership()
        self.settings = settings or DeliverySettings()
        self.counts = DeliveryCounts()
        self.groups: dict[str, Group] = {}
        self.parked = 0
        self._followed = -1  # the generation of the policies that all groups have seen
        self._store, self._key, self._form, self._policies = store, key, form, policies
        self._lease_clock = LeaseClock(wall_ms)
        self._dirty: set[QueueCursor] = set()
        self._due_progress: list[QueueCursor] = []  # what was dirty when the writing began
        self._dispatcher = form.Dispatcher(store, self.settings, self._lease_clock, self._dirty, self.counts)
        self._wake_list = form.WakeList()
        self._dead_lettering = DeadLettering(store, self._lease_clock, self._dirty, self.counts, self._wake_list, self.ownership)
        self._acknowledgements = form.Acknowledgements(
            store, self.settings, self._lease_clock, self._dirty, self.counts, self._wake_list, self._dead_lettering, random
        )
        self._waits = TimerHeap()
        self._by_queue: dict[tuple[int, int], list[QueueCursor]] = {}

    @property
    def requests(self):
        """Who judges and remembers requests (engine/replies); None: every message is handed out as it is."""
        return self._dispatcher.requests

    @requests.setter
    def requests(self, requests) -> None:
        self._dispatcher.requests = self._dead_lettering.requests = requests

    # -- what consumers ask

    def pull(self, request: PullRequest, now_ms: int, answer: Callable[[Pull], None], context: object = None) -> Pull:
        """Take the acknowledgements, then find messages or wait for them; `answer(pull)` is called once, perhaps at once.

        Acknowledgements count from here on, also when the answer never arrives.
        """
        self.counts.pulls += 1
        self._lease_clock.now_ms = now_ms
        pull = Pull(answer, context)
        group = self.group(request.group)
        if request.topics:
            pull.subscription = group.subscription(request.topics_key, request.topics, request.start)
        if request.acks:
            pull.ack_codes = self._acknowledgements.take(group, request.acks, now_ms)
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
        if wait_ms <= 0 and not pull.piece_count and self._is_looking(pull.subscription):
            # An empty answer says that there is nothing, and whoever drains a queue without waiting would stop there.
            wait_ms = self.settings.fetch_wait_ms
        if pull.piece_count or wait_ms <= 0 or self.parked >= self.settings.parked_max:
            answer(pull)
        else:
            self._park(pull, now_ms + wait_ms)
        return pull

    def cancel(self, pull: Pull) -> None:
        """The asker has gone: a waiting pull is forgotten, and nothing will be leased to it."""
        if pull.tick:
            self._unpark(pull)

    # -- what the server's loop tells

    def on_woken(self, woken: list[tuple[int, int]], now_ms: int) -> None:
        """These queues got records: serve the pulls that wait for them."""
        self._wake_list.wake_all(woken, self._by_queue)
        self._serve_woken(now_ms)

    def on_time(self, now_ms: int) -> int | None:
        """Do what is due; returns when to call again at the latest, None when nothing is waiting for time to pass."""
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
        moments = (self._lease_clock.next_at_ms(), self._waits.next_at_ms(), dead_lettering_at, filtering_at)
        return min((at for at in moments if at is not None), default=None)

    @property
    def has_progress(self) -> bool:
        """Whether write_progress() has anything to write."""
        return bool(self._dirty or self._due_progress)

    def write_progress(self, cursors_max: int | None = None) -> bool:
        """Put the progress of every cursor that has moved since into the log.

        Args:
            cursors_max: stop after so many, so that the loop turns in between; call again until it returns True.
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
            # Taken off when they are in the log: a full disk refuses, and the next call tries again.
            self._store.put_progress([(cursor.key, cursor.encoded_progress()) for cursor in step])
            del due[-len(step) :]
        return not due

    # -- what operators ask

    def group(self, name: str) -> Group:
        """The group of that name; made when it is new."""
        found = self.groups.get(name)
        if found is None:
            found = self.groups[name] = Group(
                name, self._key, self._store, self.settings, self._by_queue, self._resumed, self._form
            )
        self._follow(found)
        return found

    def move(self, group: Group, cursor: QueueCursor, offset: int, now_ms: int) -> None:
        """Let the group go on at `offset`, within what can be read. All of its receipts of that queue become stale."""
        first_offset, end_offset = self._store.bounds(cursor.topic_id, cursor.queue)
        cursor.move(min(max(offset, first_offset), end_offset), self._lease_clock.next_lease())
        self._dirty.add(cursor)
        self._wake_list.wake(cursor)
        self._serve_woken(now_ms)

    # -- what is done with cursors elsewhere

    def next_lease(self) -> int:
        """A lease of the engine's own, to keep messages from everybody."""
        return self._lease_clock.next_lease()

    def wall_ms(self) -> int:
        """The wall clock."""
        return self._lease_clock.wall_ms()

    def on_moved(self, cursor: QueueCursor) -> None:
        """The cursor has to be written down, and may have room again."""
        self._dirty.add(cursor)
        if cursor.blocked:
            self._wake_list.wake(cursor)

    # -- inside

    def _follow(self, group: Group) -> None:
        """Let the group be as the configuration has it now."""
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
        """After a change of the configuration: answer who waits in a group that is paused now, serve who waits in one that is not."""
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
        """Bury what has come back from its last attempt."""
        self._follow(cursor.group)
        claim = self._lease_clock.next_lease()
        claimed = cursor.in_flight.claim_spent(cursor.attempts_max, claim)
        if claimed:
            self._dirty.add(cursor)
            self._dead_lettering.add(cursor, claimed, claim, ATTEMPTS, "")

    def _resumed(self, cursor: QueueCursor) -> None:
        """What was out for the last time before a restart stays with whoever has it, as if it had been handed out now."""
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

    def _is_looking(self, subscription: Subscription) -> bool:
        """Whether records that it may have are being fetched, or still have to go through a filter."""
        if self._dispatcher.later and not self._dispatcher.later.keys().isdisjoint(subscription.cursors):
            return True
        return any(self._store.is_fetching(cursor.topic_id, cursor.queue) for cursor in subscription.cursors)

    def _park(self, pull: Pull, until_ms: int) -> None:
        pull.subscription.parked[pull] = None
        pull.tick = self._waits.add(until_ms, pull)
        self.parked += 1

    def _unpark(self, pull: Pull) -> None:
        self._waits.drop(pull.tick, pull)
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


def receipt_key(store, random_bytes: Callable[[int], bytes]) -> bytes:
    """The secret of all receipts: made once, then kept in the log, so that it survives restarts and fail-over."""
    for raw, value in store.progress(progress.RECEIPT_KEY):
        if raw == progress.RECEIPT_KEY and len(value) == KEY_SIZE:
            return value
    made = random_bytes(KEY_SIZE)
    store.put_progress([(progress.RECEIPT_KEY, made)])
    return made
