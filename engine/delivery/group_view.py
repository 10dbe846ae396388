"""The view of a consumer group that dispatch and acknowledgements have."""

from typing import Any, Protocol

from engine.delivery.policy import GroupPolicy
from engine.delivery.queue_cursor import QueueCursor


class GroupView(Protocol):
    """A group as dispatch and acknowledgements see it; see group.py. `receipts` are of the group's form."""

    name: str
    policy: GroupPolicy
    receipts: Any

    def find(self, hashed: int, queue: int) -> QueueCursor | None: ...
