"""Ownership of queues: all queues, or the share of this engine's broker group.

Messages that an engine writes itself stay in its share.
"""


class QueueOwnership:
    """Ownership of the only engine: every queue."""

    def nearest(self, topic: str, queue: int, queues: int) -> int | None:
        """The first owned queue of a topic, from `queue` on, cyclically.

        None: none is owned, or ownership is not known yet.
        """
        return queue
