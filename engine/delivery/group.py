"""Consumer group: its cursors, and the sets of topics that its consumers ask for."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from common.dead_letters import is_dead_letter_topic
from common.limited_log import LimitedLog
from common.names import split_stored_name
from engine.delivery import filters, progress
from engine.delivery.creations import TOPIC, Creations
from engine.delivery.group_moves import GroupMoves
from engine.delivery.native import FORM, DeliveryForm
from engine.delivery.policy import DEFAULT, KEY, GroupPolicy, begins_later
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.receipt import topic_hash
from engine.delivery.settings import DeliverySettings
from engine.delivery.subscription import Subscription
from engine.errors import EngineError, UnknownTopicError
from engine.link.pull import AT_TIME, PullRequest
from engine.log.growth import QueueGrowth
from engine.log.port import DeliveryLog
from engine.log.types import Topic

limited = LimitedLog(logging.getLogger(__name__))

SPARSE_QUEUES_MIN = 64
"""Queues of a topic from which a group makes the cursors of queues without a record only when they have one."""


class Group:
    """One group. It is created by its first pull and loads its stored progress queue by queue.

    Args:
        key: secret of the receipts.
        by_queue: (topic id, queue) -> cursors of all groups; this group adds its own.
        on_resumed: called with each stored progress and its cursor, which it loads.
        on_moving: called when keys of a topic move between queues: then call moves.step() again and again.
        creations: counts the topics that its pulls create.
        sparse: topic id -> groups without a cursor for each of its queues; this group adds itself.
    """

    def __init__(
        self, name: str, key: bytes, store: DeliveryLog, settings: DeliverySettings, by_queue: dict[tuple[int, int], list[QueueCursor]],
        on_resumed: Callable[[QueueCursor, bytes], None], on_moving: Callable[["Group"], None],
        creations: Creations, sparse: dict[int, dict["Group", None]], form: DeliveryForm = FORM,
    ) -> None:  # fmt: skip
        self.name, self.policy = name, DEFAULT
        self.changed: dict[QueueCursor, None] = {}  # of a group in order: to be written before an answer
        self.generation = -1  # of the policies at the last follow()
        self.used_ms = 0  # monotonic time of the last request about it
        self.filters = filters.stored(store, name)
        self._on_resumed, self._creations = on_resumed, creations
        self.receipts = form.Receipts(key, name)
        self._form = form
        self.topics: dict[int, list[QueueCursor]] = {}
        self.moves = GroupMoves(store, settings.waiting_max, self.topics, lambda: on_moving(self))
        self._store, self._settings, self._by_queue = store, settings, by_queue
        self.by_hash: dict[int, list[QueueCursor | None]] = {}  # by queue; None: see _slots
        self._sparse = sparse
        self._slots: dict[int, list[QueueCursor | None]] = {}  # topic id -> by queue; None: it has had no record
        self._subscribed: dict[int, list[Subscription]] = {}  # to the topics in _slots
        self._subscriptions: OrderedDict[bytes, Subscription] = OrderedDict()
        self._stored: dict[int, dict[int, bytes]] = {}
        for raw, value in store.progress(progress.group_prefix(name)):
            parts = progress.split_key(raw)
            if parts is not None and parts[0] == name:
                self._stored.setdefault(parts[1], {})[parts[2]] = value
        self._stored_hashes: dict[int, int] | None = None

    def follow(self, generation: int, now: GroupPolicy) -> list[QueueCursor]:
        """Adopt a policy; returns the cursors that it may allow to dispatch.

        The policy before it stays while the disk cannot read what another order needs: `generation` tells.
        """
        before = self.policy
        is_reordered = now.order != before.order
        try:
            growths = self._growths(now.order) if is_reordered else {}
        except (OSError, EngineError) as error:
            limited.warning(
                "group=%s: keeps its definition of before, since growths of topics cannot be read: %s", self.name, error
            )
            return []
        self.generation, self.policy = generation, now
        if now.filters is not None and now.filters != self.filters:
            self._adopt_filters(now.filters)
        if (now.order, now.on_failure, now.attempts_max) == (before.order, before.on_failure, before.attempts_max):
            return []
        cursors = [cursor for cursors in self.topics.values() for cursor in cursors]
        for cursor in cursors:
            cursor.follow(now)
        if is_reordered:  # else messages wait, which only the moves so far know
            self.moves.clear()
        for topic_id, each in growths.items():
            self.moves.follow(topic_id, each)
        return cursors

    def _growths(self, order: int) -> dict[int, list[QueueGrowth]]:
        """Growths of all topics, by topic id, for a group with this order; it looks at all queues then."""
        if order != KEY:
            return {}
        for topic_id in list(self._slots):
            if (topic := self._store.topic_by_id(topic_id)) is not None:
                self.cursors(topic, 0)
        return {topic_id: self.moves.read(topic_id, order) for topic_id in self.topics}

    def _adopt_filters(self, wanted: Mapping[str, str]) -> None:
        """Use these filters, and store them in the log."""
        self.filters = wanted
        for cursors in self.topics.values():
            for cursor in cursors:
                cursor.filter = filters.filter_for(self.filters, cursor.topic_name)
        try:
            self._store.put_progress([(filters.key(self.name), filters.encode(self.filters))])
        except EngineError as error:
            limited.warning(
                "group=%s: filters are not stored in the log, a restart reads them from the configuration: %s",
                self.name,
                error,
            )

    def subscription(self, request: PullRequest) -> Subscription:
        """Return the remembered form of a request's topics; creates missing ones. Raises QuotaError."""
        raw, topics = request.topics_key, request.topics
        found = self._subscriptions.get(raw)
        if found is not None:
            self._subscriptions.move_to_end(raw)
            self._creations.topic_uses.note_pull(raw, topics, self._store.topic)
            return found
        cursors = []
        new = (name for name, queues in topics if queues and self._store.topic(split_stored_name(name)[0]) is None)
        self._creations.admit(TOPIC, new, request.application)
        resolved = self._resolved(dict(topics))
        for topic in resolved:
            cursors += self._used_cursors(topic, request.start)
        found = self._form.Subscription(cursors)
        for topic in resolved:
            if topic.id in self._slots:
                self._subscribed.setdefault(topic.id, []).append(found)
        self._subscriptions[raw] = found
        self._creations.topic_uses.note_pull(raw, topics, self._store.topic)
        self._forget_oldest()
        return found

    def _resolved(self, topics: Mapping[str, int]) -> list[Topic]:
        """The topics of a request. One that was deleted and created again since is left out."""
        try:
            made = self._store.create_topics([(name, queues) for name, queues in topics.items() if queues])
        except UnknownTopicError:
            made = []
            for name, queues in topics.items():
                with suppress(UnknownTopicError):
                    made += self._store.create_topics([(name, queues)] if queues else [])
        known = [self._store.topic(name) for name, queues in topics.items() if not queues]
        return made + [topic for topic in known if topic is not None]

    def uses(self, topic_id: int) -> bool:
        """Whether a pull waits for the topic, or a message of it is in flight."""
        is_leased = any(cursor.in_flight.messages for cursor in self.topics.get(topic_id, ()))
        return is_leased or any(each.parked for each in self._subscribed_to(topic_id))

    def _subscribed_to(self, topic_id: int) -> set[Subscription]:
        found = set(self._subscribed.get(topic_id, ()))
        return found.union(*(cursor.subscriptions for cursor in self.topics.get(topic_id, ())))

    def unsubscribe(self, topic_id: int) -> None:
        """Forget the subscriptions to the topic: the next pull that names it looks it up, and may create it."""
        gone = self._subscribed_to(topic_id)
        for raw in [raw for raw, each in self._subscriptions.items() if each in gone]:
            self._subscriptions[raw].ring.clear()
            self._drop(raw)

    def forget_topic(self, old: Topic) -> list[QueueCursor]:
        """A topic has no name any more: forget the group's progress in it; returns its cursors.

        Progress that a full disk does not let go is removed in an hour's round of upkeep.
        """
        cursors = self.topics.pop(old.id, [])
        for cursor in cursors:
            self._by_queue[old.id, cursor.queue].remove(cursor)
            for subscription in cursor.subscriptions:
                subscription.ring.pop(cursor, None)
        self.moves.forget(old.id)
        self._end_sparse(old.id)
        self.by_hash.pop(topic_hash(old.name), None)
        kept = {progress.key(self.name, old.id, queue) for queue in self._stored.pop(old.id, {})}
        kept.update(cursor.key for cursor in cursors)
        self._stored_hashes = None
        try:
            if kept:
                self._store.put_progress([(key, b"") for key in sorted(kept)])
        except EngineError as error:
            limited.warning("group=%s topic=%s: old progress is not removed yet: %s", self.name, old.name, error)
        return cursors

    def cursors(self, topic: Topic, start: int) -> list[QueueCursor]:
        """Return all cursors of a topic by queue; creates missing ones.

        A queue that was added to a topic of the group begins at its first message, regardless of `start`: the group has
        passed over none of its messages.
        """
        subscribed = self._subscribed.get(topic.id, ())
        slots = [*self._slots.get(topic.id, self.topics.get(topic.id, ()))]
        slots += [None] * (topic.queues - len(slots))
        missing = [queue for queue, cursor in enumerate(slots) if cursor is None]
        growths = self.moves.read(topic.id, self.policy.order) if missing else []
        made = self._make(topic, missing, start if self._is_fresh(topic) else 0)
        for cursor in made:
            slots[cursor.queue] = cursor
            for subscription in subscribed:
                subscription.add(cursor)
        self._end_sparse(topic.id)
        cursors: list[QueueCursor] = slots  # type: ignore[assignment]
        self.topics[topic.id] = self.by_hash[topic_hash(topic.name)] = cursors  # type: ignore[assignment]
        self.moves.follow(topic.id, growths)
        return cursors

    def _used_cursors(self, topic: Topic, start: int) -> list[QueueCursor]:
        """As cursors(), without the queues of a large topic that have no record: their first record makes theirs.

        Not with order by key, which looks at all queues, and not when a new group begins at a moment, which is stored
        for each queue.
        """
        known = self.topics.get(topic.id)
        is_whole = known is not None and topic.id not in self._slots
        if topic.queues < SPARSE_QUEUES_MIN or is_whole or self.policy.order == KEY:
            return self.cursors(topic, start)
        used = self._store.used_queues(topic.id) | self._stored.get(topic.id, {}).keys()
        if len(used) >= topic.queues or (begins_later(topic.name, start) and self._is_fresh(topic)):
            return self.cursors(topic, start)
        slots = self._slots.get(topic.id, [])
        slots += [None] * (topic.queues - len(slots))
        made = self._make(topic, sorted(queue for queue in used if slots[queue] is None), 0)
        self._slots[topic.id] = self.by_hash[topic_hash(topic.name)] = slots
        self._sparse.setdefault(topic.id, {})[self] = None
        for cursor in made:
            self._put(cursor)
        for queue, slot in enumerate(slots):
            if slot is None:
                self._store.watch(topic.id, queue)
        return self.topics.setdefault(topic.id, [])

    def make_cursor(self, topic_id: int, queue: int) -> None:
        """A queue of a large topic has its first record: make its cursor if there is none."""
        slots, topic = self._slots.get(topic_id), self._store.topic_by_id(topic_id)
        if slots is None or topic is None or queue >= len(slots) or slots[queue] is not None:
            return
        for cursor in self._make(topic, [queue], 0):
            self._put(cursor)

    def _put(self, cursor: QueueCursor) -> None:
        """Take up a cursor of a topic that has not all of them."""
        self._slots[cursor.topic_id][cursor.queue] = cursor
        self.topics.setdefault(cursor.topic_id, []).append(cursor)
        for subscription in self._subscribed.get(cursor.topic_id, ()):
            subscription.add(cursor)

    def _make(self, topic: Topic, queues: Sequence[int], start: int) -> list[QueueCursor]:
        floor = progress.floor_of(self._store, topic) if queues else 0
        # All is read before stored leases are resumed: the lease clock would end those of cursors that are left out.
        bounds = [self._store.bounds(topic.id, queue) for queue in queues]
        # All are made before any is remembered: a full disk may refuse in the middle, and the next pull begins again.
        made = [self._cursor(topic, *each, start, floor) for each in zip(queues, bounds, strict=True)]
        for cursor in made:
            self._by_queue.setdefault((topic.id, cursor.queue), []).append(cursor)
        return made

    def _is_fresh(self, topic: Topic) -> bool:
        """Whether the topic is new to the group. Dead letters are there because of it: it begins with the first one."""
        return topic.id not in self.topics and topic.id not in self._stored and not is_dead_letter_topic(topic.name)

    def _end_sparse(self, topic_id: int) -> None:
        self._slots.pop(topic_id, None)
        self._subscribed.pop(topic_id, None)
        groups = self._sparse.get(topic_id, {})
        groups.pop(self, None)
        if not groups:
            self._sparse.pop(topic_id, None)

    def find(self, hashed: int, queue: int) -> QueueCursor | None:
        """Return the cursor of a token; loads the topic when only its stored progress is known so far."""
        cursors = self.by_hash.get(hashed)
        if cursors is None:
            topic = self._stored_topic(hashed)
            if topic is None:
                return None
            self._used_cursors(topic, 0)
            cursors = self.by_hash[hashed]
        if queue >= len(cursors):
            return None
        if cursors[queue] is None:
            self.make_cursor(next(topic_id for topic_id, slots in self._slots.items() if slots is cursors), queue)
        return cursors[queue]

    def load_all(self) -> list[QueueCursor]:
        """Load all stored progress of the group; returns all its cursors."""
        for topic_id in list(self._stored):
            topic = self._current(topic_id)
            if topic is not None:
                self.cursors(topic, 0)
        for topic_id in list(self._slots):
            if (topic := self._store.topic_by_id(topic_id)) is not None:
                self.cursors(topic, 0)
        return [cursor for cursors in self.topics.values() for cursor in cursors]

    @property
    def cursor_count(self) -> int:
        """Number of its cursors in memory."""
        return sum(map(len, self.topics.values()))

    @property
    def is_idle(self) -> bool:
        """Whether no pull waits and no message is leased."""
        cursors = [cursor for cursors in self.topics.values() for cursor in cursors]
        return not (
            self.moves
            or self.waiting()
            or any(cursor.in_flight.withheld for cursor in cursors)
            or any(each.lease and not each.ready for cursor in cursors for each in cursor.in_flight.ranges)
        )

    def leave(self) -> list[QueueCursor]:
        """Take the group out of everything that it shares with other groups; returns its cursors."""
        for topic_id, cursors in self.topics.items():
            for cursor in cursors:
                sharing = self._by_queue[topic_id, cursor.queue]
                sharing.remove(cursor)
                if not sharing:
                    del self._by_queue[topic_id, cursor.queue]
        for subscription in self._subscriptions.values():
            subscription.leave()
        for topic_id in list(self._slots):
            self._end_sparse(topic_id)
        return [cursor for cursors in self.topics.values() for cursor in cursors]

    def waiting(self) -> list[Subscription]:
        """Return the subscriptions with waiting pulls."""
        return [each for each in self._subscriptions.values() if each.parked]

    def _cursor(self, topic: Topic, queue: int, bounds: tuple[int, int], start: int, floor: int) -> QueueCursor:
        cursor = self._form.QueueCursor(
            topic.name,
            topic.id,
            topic_hash(topic.name),
            queue,
            self._settings,
            self._form.InFlightRanges(),
            self._form.KeyOrder,
        )
        cursor.key = progress.key(self.name, topic.id, queue)
        cursor.filter = filters.filter_for(self.filters, topic.name)
        cursor.group, cursor.changed = self, self.changed
        cursor.follow(self.policy)
        stored = self._stored.get(topic.id, {}).get(queue)
        first_offset, end_offset = bounds
        if stored is not None:
            self._on_resumed(cursor, stored)
            cursor.see(first_offset, end_offset)
        elif begins_later(topic.name, start):
            cursor.next_offset, cursor.floor = end_offset, floor
            if start == AT_TIME:
                cursor.next_offset = self._store.offset_at_time(topic.id, queue, self.policy.start_at_ms)
            # At once: a restart before the first flush would begin at the later end, and lose the messages between.
            self._store.put_progress([(cursor.key, cursor.encoded_progress(0, 0, 0, progress.NONE_YOUNG))])
        else:
            cursor.next_offset, cursor.floor = first_offset, floor
        return cursor

    def _stored_topic(self, hashed: int) -> Topic | None:
        if self._stored_hashes is None:
            self._stored_hashes = {}
            for topic_id in self._stored:
                topic = self._current(topic_id)
                if topic is not None:
                    self._stored_hashes[topic_hash(topic.name)] = topic_id
        found = self._stored_hashes.get(hashed)
        return None if found is None else self._store.topic_by_id(found)

    def _current(self, topic_id: int) -> Topic | None:
        """The topic of that id, unless it was deleted and created again."""
        topic = self._store.topic_by_id(topic_id)
        return topic if topic is not None and self._store.topic(topic.name) == topic else None

    def _forget_oldest(self) -> None:
        if len(self._subscriptions) <= self._settings.subscriptions_max:
            return
        for raw, subscription in self._subscriptions.items():
            if not subscription.parked:
                self._drop(raw)
                return

    def _drop(self, raw: bytes) -> None:
        subscription = self._subscriptions.pop(raw)
        subscription.leave()
        for listed in filter(lambda listed: subscription in listed, self._subscribed.values()):
            listed.remove(subscription)
