"""Which queues live at this engine: all of them, or its broker group's share. What an engine sends by itself has to stay there."""


class QueueOwnership:
    """The only engine's: everything is at home."""

    def nearest(self, topic: str, queue: int, queues: int) -> int | None:
        """The first of a topic's queues, from `queue` on and round again, that lives here; None: none does, or it is not known yet."""
        return queue
