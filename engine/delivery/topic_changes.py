"""Changes of topics as delivery follows them: more queues, topics that are made again, and forgotten ones."""

import logging
from collections.abc import Callable, Mapping, Sequence

from common.limited_log import LimitedLog
from engine.delivery import progress
from engine.delivery.group import Group
from engine.delivery.leases import LeaseClock
from engine.delivery.policy import KEY
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.subscription import WakeList
from engine.errors import EngineError
from engine.log.growth import QueueGrowth
from engine.log.port import DeliveryLog
from engine.log.types import Topic

limited = LimitedLog(logging.getLogger(__name__))

MOVES_MS = 20
"""Interval at which messages are looked at that wait for another queue of their key."""


class TopicChanges:
    """Follows the topics of all groups.

    Args:
        groups: the loaded groups, by name.
        wake_list: gets cursors whose keys have left their old queues.
        drop: called with cursors whose progress must not be written any more.

    Attributes:
        sparse: topic id -> groups that have no cursor yet for its queues without a record.
    """

    def __init__(
        self, store: DeliveryLog, groups: Mapping[str, Group], lease_clock: LeaseClock, wake_list: WakeList,
        drop: Callable[[list[QueueCursor]], None],
    ) -> None:  # fmt: skip
        self._store, self._groups, self._lease_clock = store, groups, lease_clock
        self._wake_list, self._drop = wake_list, drop
        self.sparse: dict[int, dict[Group, None]] = {}
        self._moving: dict[Group, None] = {}  # groups whose keys move between queues
        store.growth.on_growth(self._on_growth)
        store.growth.on_replacing(self._on_replacing)
        store.growth.on_replaced(self._on_replaced)
        store.growth.on_forgotten(self._on_forgotten)

    def make_cursors(self, woken: Sequence[tuple[int, int]]) -> None:
        """These queues, as (topic id, queue), have records: make the cursors that groups have left out."""
        for topic_id, queue in woken:
            for group in list(self.sparse.get(topic_id, ())):
                try:
                    group.make_cursor(topic_id, queue)
                except (OSError, EngineError) as error:
                    self._store.watch(topic_id, queue)  # again with its next record, or when the disk can be read
                    limited.warning("group=%s queue=%d: has no cursor for now: %s", group.name, queue, error)

    def on_moving(self, group: Group) -> None:
        """Keys of the group move between queues: step() lets them."""
        self._moving[group] = None

    def step(self, now_ms: int) -> int | None:
        """Dispatch messages whose keys have left their old queues; returns the time of the next call."""
        for group in list(self._moving):
            for cursor in group.moves.step(now_ms, self._lease_clock.wall_ms()):
                self._wake_list.wake(cursor)
            if not group.moves:
                del self._moving[group]
        return now_ms + MOVES_MS if self._moving else None

    def _on_growth(self, topic: Topic, growths: list[QueueGrowth]) -> None:
        """A topic has got more queues: groups with order by key keep the order of the keys that move."""
        for group in self._groups.values():
            if group.policy.order == KEY:
                group.moves.follow(topic.id, growths)

    def _on_replacing(self, old: Topic, new_id: int) -> None:
        """A topic is going to be created again: no old receipt counts in it."""
        self._store.put_progress([progress.floor_entry(new_id, self._lease_clock.next_lease())])

    def _on_replaced(self, old: Topic, new: Topic) -> None:
        """A topic was created again: no group has progress in the old one.

        That of groups that are not loaded goes with the next round of upkeep: no name leads to its id any more.
        """
        for group in self._groups.values():
            self._drop(group.forget_topic(old))
        self._store.put_progress([(progress.floor_entry(old.id, 0)[0], b"")])

    def is_used(self, topic_id: int) -> bool:
        """Whether a pull waits for the topic, or a message of it is in flight, in any loaded group."""
        return any(group.uses(topic_id) for group in self._groups.values())

    def starts_late(self, topic_id: int, wall_ms: int) -> bool:
        """Whether a loaded group has cursors in the topic, but would not begin with all of it if it came back."""
        known = (group for group in self._groups.values() if topic_id in group.topics)
        return any(not group.policy.begins_with_all(wall_ms) for group in known)

    def floor_entry(self) -> tuple[bytes, bytes]:
        """The entry to store before topics are forgotten: no receipt of theirs counts in what has their names later."""
        return progress.forgotten_entry(self._lease_clock.next_lease())

    def _on_forgotten(self, topic: Topic) -> None:
        """A topic was forgotten: no group has progress in it, and the next pull that names it looks it up."""
        for group in self._groups.values():
            group.unsubscribe(topic.id)
            cursors = group.forget_topic(topic)
            self._drop(cursors)
            for cursor in cursors:
                self._lease_clock.forget(cursor)
