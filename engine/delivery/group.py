"""Consumer group: its cursors, and the sets of topics that its consumers ask for."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from common.dead_letters import is_dead_letter_topic
from engine.delivery import filters, progress
from engine.delivery.native import FORM, DeliveryForm
from engine.delivery.policy import DEFAULT, GroupPolicy
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.receipt import topic_hash
from engine.delivery.settings import DeliverySettings
from engine.delivery.subscription import Subscription
from engine.errors import EngineError
from engine.link.pull import AT_TIME, LATEST
from engine.log.port import DeliveryLog
from engine.log.types import Topic

log = logging.getLogger(__name__)


class Group:
    """One group. It is created by its first pull and loads its stored progress queue by queue.

    Args:
        key: secret of the receipts.
        by_queue: (topic id, queue) -> cursors of all groups; this group adds its own.
        on_resumed: called with each cursor that was loaded from stored progress.
    """

    def __init__(
        self, name: str, key: bytes, store: DeliveryLog, settings: DeliverySettings, by_queue: dict[tuple[int, int], list[QueueCursor]],
        on_resumed: Callable[[QueueCursor], None], form: DeliveryForm = FORM,
    ) -> None:  # fmt: skip
        self.name = name
        self.policy = DEFAULT
        self.generation = -1  # of the policies at the last follow()
        self.filters = filters.stored(store, name)
        self._on_resumed = on_resumed
        self.receipts = form.Receipts(key, name)
        self._form = form
        self.topics: dict[int, list[QueueCursor]] = {}
        self._store, self._settings, self._by_queue = store, settings, by_queue
        self.by_hash: dict[int, list[QueueCursor]] = {}
        self._subscriptions: OrderedDict[bytes, Subscription] = OrderedDict()
        self._stored: dict[int, dict[int, bytes]] = {}
        for raw, value in store.progress(progress.group_prefix(name)):
            parts = progress.split_key(raw)
            if parts is not None and parts[0] == name:
                self._stored.setdefault(parts[1], {})[parts[2]] = value
        self._stored_hashes: dict[int, int] | None = None

    def follow(self, generation: int, now: GroupPolicy) -> list[QueueCursor]:
        """Adopt a policy; returns the cursors that it may allow to dispatch."""
        self.generation, self.policy, before = generation, now, self.policy
        if now.filters is not None and now.filters != self.filters:
            self._adopt_filters(now.filters)
        if (now.order, now.on_failure, now.attempts_max) == (before.order, before.on_failure, before.attempts_max):
            return []
        cursors = [cursor for cursors in self.topics.values() for cursor in cursors]
        for cursor in cursors:
            cursor.follow(now)
        return cursors

    def _adopt_filters(self, wanted: Mapping[str, str]) -> None:
        """Use these filters, and store them in the log."""
        self.filters = wanted
        for cursors in self.topics.values():
            for cursor in cursors:
                cursor.filter = filters.filter_for(self.filters, cursor.topic_name)
        try:
            self._store.put_progress([(filters.key(self.name), filters.encode(self.filters))])
        except EngineError as error:
            log.warning(
                "group=%s: filters are not stored in the log, a restart reads them from the configuration: %s",
                self.name,
                error,
            )

    def subscription(self, raw: bytes, topics: Sequence[tuple[str, int]], start: int) -> Subscription:
        """Return the remembered form of a request's topics; creates missing topics whose number of queues is given.

        Args:
            raw: bytes of the topics in the request, the key of the remembered form.
        """
        found = self._subscriptions.get(raw)
        if found is not None:
            self._subscriptions.move_to_end(raw)
            return found
        unique = dict(topics)
        made = self._store.create_topics([(name, queues) for name, queues in unique.items() if queues])
        known = [self._store.topic(name) for name, queues in unique.items() if not queues]
        cursors = []
        for topic in made + [topic for topic in known if topic is not None]:
            cursors += self.cursors(topic, start)
        found = self._form.Subscription(cursors)
        self._subscriptions[raw] = found
        self._forget_oldest()
        return found

    def cursors(self, topic: Topic, start: int) -> list[QueueCursor]:
        """Return all cursors of a topic; creates missing ones.

        A queue that was added to a topic of the group begins at its first message, regardless of `start`: the group has
        passed over none of its messages.
        """
        known = self.topics.get(topic.id, [])
        # Dead letters are there because of this group: it begins with the first one, regardless of `start`.
        fresh = not known and topic.id not in self._stored and not is_dead_letter_topic(topic.name)
        # All are made before any is remembered: a full disk may refuse in the middle, and the next pull begins again.
        made = [self._cursor(topic, queue, start if fresh else 0) for queue in range(len(known), topic.queues)]
        for cursor in made:
            self._by_queue.setdefault((topic.id, cursor.queue), []).append(cursor)
        cursors = self.topics[topic.id] = self.by_hash[topic_hash(topic.name)] = known + made
        return cursors

    def find(self, hashed: int, queue: int) -> QueueCursor | None:
        """Return the cursor of a token; loads the topic when only its stored progress is known so far."""
        cursors = self.by_hash.get(hashed)
        if cursors is None:
            topic = self._stored_topic(hashed)
            if topic is None:
                return None
            cursors = self.cursors(topic, 0)
        return cursors[queue] if queue < len(cursors) else None

    def load_all(self) -> list[QueueCursor]:
        """Load all stored progress of the group; returns all its cursors."""
        for topic_id in list(self._stored):
            topic = self._store.topic_by_id(topic_id)
            if topic is not None:
                self.cursors(topic, 0)
        return [cursor for cursors in self.topics.values() for cursor in cursors]

    def waiting(self) -> list[Subscription]:
        """Return the subscriptions with waiting pulls."""
        return [each for each in self._subscriptions.values() if each.parked]

    def _cursor(self, topic: Topic, queue: int, start: int) -> QueueCursor:
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
        cursor.group = self
        cursor.follow(self.policy)
        stored = self._stored.get(topic.id, {}).get(queue)
        first_offset, end_offset = self._store.bounds(topic.id, queue)
        if stored is not None:
            cursor.resume(progress.decode(stored))
            cursor.see(first_offset, end_offset)
            self._on_resumed(cursor)
        elif start in (LATEST, AT_TIME):
            cursor.next_offset = end_offset
            if start == AT_TIME:
                cursor.next_offset = self._store.offset_at_time(topic.id, queue, self.policy.start_at_ms)
            # At once: a restart before the first flush would begin at the later end, and lose the messages between.
            self._store.put_progress([(cursor.key, cursor.encoded_progress())])
        else:
            cursor.next_offset = first_offset
        return cursor

    def _stored_topic(self, hashed: int) -> Topic | None:
        if self._stored_hashes is None:
            self._stored_hashes = {}
            for topic_id in self._stored:
                topic = self._store.topic_by_id(topic_id)
                if topic is not None:
                    self._stored_hashes[topic_hash(topic.name)] = topic_id
        found = self._stored_hashes.get(hashed)
        return None if found is None else self._store.topic_by_id(found)

    def _forget_oldest(self) -> None:
        if len(self._subscriptions) <= self._settings.subscriptions_max:
            return
        for raw, subscription in self._subscriptions.items():
            if not subscription.parked:
                subscription.leave()
                del self._subscriptions[raw]
                return
