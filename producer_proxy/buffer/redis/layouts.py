"""Layouts of one shard in Redis: one key with a stream, or with a list for codis and old servers. Both keep values in
order.

Both can be drained at `maxmemory`: no command that reads or deletes needs memory there. Both are safe beside a second,
stale drainer: only exactly the value that was read is deleted.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

TRIM = """
if redis.call('LINDEX', KEYS[1], 0) ~= ARGV[1] then return 0 end
redis.call('LTRIM', KEYS[1], ARGV[2], -1)
return 1
"""


KEEP_ALL = "return redis.call('LTRIM', KEYS[1], 0, -1)"


class ShardValue(NamedTuple):
    """A value that was read. `position` is its handle in the layout."""

    shard: "Layout"
    position: Any
    value: bytes


class HeadChanged(Exception):
    """Another drainer has removed values."""


class Layout(ABC):
    """Layout of one key. Errors of redis-py propagate.

    Attributes:
        passes_over: values behind others that stay can be deleted at once, so a drain may pass over a topic.
    """

    passes_over = False

    def __init__(self, client: Any, key: str) -> None:
        self._client, self.key = client, key

    @abstractmethod
    def push(self, pipe: Any, values: Sequence[bytes]) -> int:
        """Queue commands that append the values; return their number. The last command's answer is the new length."""

    @abstractmethod
    def ask_length(self, pipe: Any) -> None:
        """Queue one command that answers the length."""

    @abstractmethod
    def read(self, count: int, after: Any = None) -> list[tuple[Any, bytes]]:
        """The oldest values, or those after the handle `after`, each with its handle."""

    @abstractmethod
    def delete(self, handles: Sequence[Any]) -> None:
        """Remove values that were read. Raises HeadChanged: some were gone already."""

    @abstractmethod
    def try_delete(self) -> None:
        """Run the command that deletes, so that it deletes nothing. Raises the error with which Redis refuses it."""


class Streams(Layout):
    """XADD, XRANGE, XDEL by id.

    No consumer group: it would give later values to a second drainer before those of the first are in the engine. Its
    list of pending entries would be additional state to take over.
    """

    passes_over = True

    def push(self, pipe: Any, values: Sequence[bytes]) -> int:
        for value in values:
            pipe.xadd(self.key, {b"e": value})
        pipe.xlen(self.key)
        return len(values) + 1

    def ask_length(self, pipe: Any) -> None:
        pipe.xlen(self.key)

    def read(self, count: int, after: Any = None) -> list[tuple[Any, bytes]]:
        start = "-" if after is None else b"(" + after
        return [
            (identity, fields.get(b"e", b"")) for identity, fields in self._client.xrange(self.key, start, "+", count)
        ]

    def delete(self, handles: Sequence[Any]) -> None:
        if self._client.xdel(self.key, *handles) != len(handles):
            raise HeadChanged(self.key)

    def try_delete(self) -> None:
        self._client.xdel(self.key, b"0-0")


class Lists(Layout):
    """RPUSH, LRANGE, and an EVAL that trims only if the head is still the value that was read. Redis 3.2's commands, no
    MULTI.

    A value that is deleted before an older one is trimmed together with the older one. Until then only this process
    knows of the deletion.
    """

    def __init__(self, client: Any, key: str) -> None:
        super().__init__(client, key)
        self._base = 0  # number of the list's first value
        self._head: bytes | None = None
        self._deleted: set[int] = set()

    def push(self, pipe: Any, values: Sequence[bytes]) -> int:
        pipe.rpush(self.key, *values)
        return 1

    def ask_length(self, pipe: Any) -> None:
        pipe.llen(self.key)

    def read(self, count: int, after: Any = None) -> list[tuple[Any, bytes]]:
        first = self._base if after is None else after + 1
        start = first - self._base
        values = self._client.lrange(self.key, start, start + count + len(self._deleted) - 1)
        if start == 0:
            self._head = values[0] if values else None
        numbered = [(first + number, value) for number, value in enumerate(values)]
        return [(number, value) for number, value in numbered if number not in self._deleted][:count]

    def delete(self, handles: Sequence[Any]) -> None:
        self._deleted.update(handles)
        try:
            self._trim()
        except BaseException:
            self._deleted.difference_update(handles)
            raise

    def try_delete(self) -> None:
        self._client.eval(KEEP_ALL, 1, self.key)

    def _trim(self) -> None:
        count = 0
        while self._base + count in self._deleted:
            count += 1
        if not count:
            return
        if not self._client.eval(TRIM, 1, self.key, self._head, count):
            raise HeadChanged(self.key)
        self._deleted.difference_update(range(self._base, self._base + count))
        self._base += count
        if self._deleted:  # the next deletion needs the new head
            self._head = self._client.lindex(self.key, 0)


LAYOUTS: dict[str, type[Layout]] = {"streams": Streams, "lists": Lists}
