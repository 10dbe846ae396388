"""The numbers of entries that a store knows of its shards, against which Redis is compared.

Fewer in Redis than were counted: FLUSHALL, an eviction, a fail-over that lost writes, or another drainer.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from common.limited_log import LimitedLog
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.native import entries_of
from producer_proxy.buffer.ordering_keys import OrderingKeys
from producer_proxy.buffer.redis.layouts import Layout
from producer_proxy.buffer.redis.undeleted import PAGE, UndeletedValues
from producer_proxy.buffer.room import Room

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.buffer"))


class ShardCounts:
    """
    Attributes:
        lengths: number of values by the shard's key, the undeleted ones included.
        oldest: when the oldest entry that waits was accepted, by key.
        undeleted: values that wait for their deletion only.
        stale: the shards must be counted again before further entries are taken.
    """

    def __init__(self, on_missing: Callable[[int], None]) -> None:
        self.lengths: dict[str, int] = {}
        self.oldest: dict[str, int] = {}
        self.undeleted = UndeletedValues()
        self.stale = False
        self._on_missing = on_missing

    def waiting(self, shard: Layout) -> int:
        return self.lengths.get(shard.key, 0) - self.undeleted.count(shard.key)

    def put(self, shard: Layout, own: Sequence[BufferEntry], length: int) -> None:
        """These were appended; Redis has answered the new length."""
        expected = self.lengths.get(shard.key, 0) + len(own)
        if length < expected:
            self.report_missing(shard, expected - length)
        self.stale = self.stale or length != expected
        self.lengths[shard.key] = length
        self.oldest.setdefault(shard.key, own[0].accepted_at_ms)

    def deleted(self, shard: Layout, count: int) -> None:
        self.lengths[shard.key] = self.lengths.get(shard.key, 0) - count
        self.check_empty(shard)

    def check_empty(self, shard: Layout) -> None:
        if self.waiting(shard) <= 0:
            self.oldest.pop(shard.key, None)

    def keep_undeleted(self, shard: Layout, values: Iterable[bytes]) -> None:
        """These leave the buffer, and Redis still has them."""
        self.undeleted.add(shard.key, values)
        self.check_empty(shard)

    def delete_page(self, shard: Layout) -> bool:
        """Delete undeleted values of one page; returns whether others are left. Errors as of a layout's `delete`."""
        self.lengths[shard.key] = self.lengths.get(shard.key, 0) - self.undeleted.delete_page(shard)
        return self.undeleted.count(shard.key) > 0

    def report_missing(self, shard: Layout, count: int) -> None:
        """Report entries that this proxy did not remove."""
        limited.error("buffer=redis key=%s: %d entries that were answered BUFFERED are gone", shard.key, count)
        self._on_missing(count)
        self.stale = True

    def count_again(self, shards: Iterable[Layout], room: Room) -> OrderingKeys:
        """Count the entries of these shards from Redis into `room` and the keys returned, and report missing ones."""
        keys, known = OrderingKeys(), self.lengths
        lengths, oldest = dict[str, int](), dict[str, int]()
        for shard in shards:
            after: Any = None
            seen, undeleted = 0, set[bytes]()
            while values := shard.read(PAGE, after):
                waiting = self.undeleted.without(shard.key, values, None)
                undeleted |= self.undeleted.met(shard.key, values)
                after, seen = values[-1][0], seen + len(values)
                entries = [entry for entry in entries_of([value for _, value in waiting]) if entry is not None]
                if entries:
                    oldest.setdefault(shard.key, entries[0].accepted_at_ms)
                    keys.enter(entries)
                    room.enter(entries)
            lengths[shard.key] = seen
            self.undeleted.become(shard.key, undeleted)
            if seen < known.get(shard.key, 0):
                self.report_missing(shard, known[shard.key] - seen)
        self.lengths, self.oldest = lengths, oldest
        return keys
