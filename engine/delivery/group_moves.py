"""Keys of one group that move between queues, per topic that has grown."""

from collections.abc import Callable, Mapping

from engine.delivery.key_moves import KeyMoves
from engine.delivery.policy import KEY
from engine.delivery.queue_cursor import QueueCursor
from engine.log.growth import QueueGrowth
from engine.log.port import DeliveryLog


class GroupMoves:
    """The KeyMoves of one group, by topic id, while keys move between the topic's queues.

    Its caller reads the growths before it changes anything. Cursors that dispatched without them, because the disk could
    not read them at that moment, would lose the order for good.

    Args:
        cursors: topic id -> the group's cursors in the topic, one per queue.
        on_moving: called when keys move: then call step() again and again.
    """

    def __init__(
        self,
        store: DeliveryLog,
        waiting_max: int,
        cursors: Mapping[int, list[QueueCursor]],
        on_moving: Callable[[], None],
    ) -> None:
        self._store, self._waiting_max, self._cursors, self._on_moving = store, waiting_max, cursors, on_moving
        self._by_topic: dict[int, KeyMoves] = {}

    def __len__(self) -> int:
        """Number of topics whose keys move."""
        return len(self._by_topic)

    def read(self, topic_id: int, order: int) -> list[QueueGrowth]:
        """Growths of the topic that matter to a group with this order. Raises OSError, or an error of the log."""
        return self._store.growth.of(topic_id) if order == KEY else []

    def follow(self, topic_id: int, growths: list[QueueGrowth]) -> None:
        """Keep the order over these growths, whose old queues may have open messages."""
        cursors = self._cursors
        if not growths or not cursors.get(topic_id) or cursors[topic_id][0].is_dead_letters:
            return
        moves = self._by_topic.get(topic_id)
        if moves is None:
            moves = self._by_topic[topic_id] = KeyMoves(
                topic_id, lambda: cursors[topic_id], self._store, self._waiting_max
            )
        moves.follow(growths)
        self._on_moving()

    def step(self, now_ms: int, wall_ms: int) -> list[QueueCursor]:
        """Let messages be dispatched whose keys have left their old queues; returns their cursors."""
        woken: list[QueueCursor] = []
        for topic_id, moves in list(self._by_topic.items()):
            woken += moves.step(now_ms, wall_ms)
            if moves.is_over:
                moves.detach()
                del self._by_topic[topic_id]
        return woken

    def forget(self, topic_id: int) -> None:
        """The group has no cursors in the topic any more."""
        self._by_topic.pop(topic_id, None)

    def clear(self) -> None:
        """The group has another order: no message waits for another queue."""
        self._by_topic.clear()
