"""The bound of what waits in the engine for one group and partition. Pure: no socket, clock or thread."""

from collections import deque

from engine.client.backlog import QueueBacklog
from kafka_bridge.copy_in.core import BATCH_BYTES_MAX

MESSAGES_MAX, BYTES_MAX = 1_000, 8 << 20
FETCH_RECORDS_MAX = 200
"""Records that one poll returns at most, and so those of one part."""


class ReadAhead:
    """Counts what was appended, and learns by the engine's backlog what of it is acknowledged.

    Attributes:
        messages, size_bytes: that wait in the engine; both 0 before the first backlog is known.
    """

    def __init__(self) -> None:
        self.messages = self.size_bytes = 0
        self._is_known = False
        self._parts: deque[tuple[int, int]] = deque()

    @property
    def has_room(self) -> bool:
        """Whether one more part may be appended. The last record of a part may pass the bound of bytes."""
        has_messages = self.messages + FETCH_RECORDS_MAX <= MESSAGES_MAX
        return self._is_known and has_messages and self.size_bytes + BATCH_BYTES_MAX <= BYTES_MAX

    def add(self, messages: int, size_bytes: int) -> None:
        """A part was appended."""
        self._parts.append((messages, size_bytes))
        self.messages += messages
        self.size_bytes += size_bytes

    def see(self, backlog: QueueBacklog) -> None:
        """Take the engine's word. Messages are taken to be acknowledged in their order, for the sake of the bytes."""
        if not self._is_known or backlog.messages > self.messages:
            self._is_known = True
            self._parts = deque([(backlog.messages, backlog.size_bytes)] if backlog.messages else [])
            self.messages, self.size_bytes = backlog
        while self._parts and self.messages > backlog.messages:
            messages, size_bytes = self._parts.popleft()
            taken = min(messages, self.messages - backlog.messages)
            taken_bytes = size_bytes * taken // messages
            self.messages, self.size_bytes = self.messages - taken, self.size_bytes - taken_bytes
            if taken < messages:
                self._parts.appendleft((messages - taken, size_bytes - taken_bytes))
