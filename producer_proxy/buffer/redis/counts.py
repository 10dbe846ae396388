"""The numbers of entries that a store knows of its shards, against which Redis is compared.

Fewer in Redis than were counted: FLUSHALL, an eviction, a fail-over that lost writes, or another drainer. A replica that
lags, and an older copy, may have as many entries or more, but other ones: so the latest values are known one by one.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from common.limited_log import LimitedLog
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.native import entries_of
from producer_proxy.buffer.ordering_keys import OrderingKeys
from producer_proxy.buffer.redis.latest import LatestValues
from producer_proxy.buffer.redis.layouts import Layout
from producer_proxy.buffer.redis.undeleted import PAGE, UndeletedValues, digest
from producer_proxy.buffer.room import Room

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.buffer"))

PAGES_PASSED_OVER = 20  # of held topics, before the others of a shard wait for them


class ShardCounts:
    """
    Attributes:
        lengths: number of values by the shard's key, the undeleted ones included.
        oldest: when the oldest entry that waits was accepted, by key.
        undeleted: values that wait for their deletion only.
        latest: those that were put and deleted last.
        stale: the shards must be counted again before further entries are taken.
    """

    def __init__(self, on_missing: Callable[[int], None]) -> None:
        self.lengths: dict[str, int] = {}
        self.oldest: dict[str, int] = {}
        self.undeleted, self.latest = UndeletedValues(), LatestValues()
        self.stale = False
        self._on_missing = on_missing

    def waiting(self, shard: Layout) -> int:
        return self.lengths.get(shard.key, 0) - self.undeleted.count(shard.key)

    def pages(self, shard: Layout, count: int) -> Iterator[Sequence[tuple[Any, bytes]]]:
        """The values that wait, from the oldest: first of so many values, then of some whole pages."""
        first = after = self.undeleted.first_handle(shard.key)
        for _ in range(1 + PAGES_PASSED_OVER):
            values = shard.read(count, after)
            if not values:
                self.stale = self.stale or after == first  # a count tells what is missing
                return
            waiting = self.undeleted.without(shard.key, values, after)
            after, count = values[-1][0], PAGE
            yield waiting

    def put(self, shard: Layout, own: Sequence[BufferEntry], values: Iterable[bytes], length: int) -> None:
        """These were appended; Redis has answered the new length. Another one than expected is looked into by a count."""
        expected = self.lengths.get(shard.key, 0) + len(own)
        self.stale = self.stale or length != expected
        self.lengths[shard.key] = expected
        self.oldest.setdefault(shard.key, own[0].accepted_at_ms)
        self.latest.put(shard.key, values)

    def deleted(self, shard: Layout, values: Collection[bytes]) -> None:
        self.lengths[shard.key] = self.lengths.get(shard.key, 0) - len(values)
        self.latest.delete(values)
        self.check_empty(shard)

    def check_empty(self, shard: Layout) -> None:
        if self.waiting(shard) <= 0:
            self.oldest.pop(shard.key, None)

    def keep_undeleted(self, shard: Layout, values: Sequence[bytes]) -> None:
        """These leave the buffer, and Redis still has them."""
        self.undeleted.add(shard.key, values)
        self.latest.delete(values)
        self.check_empty(shard)

    def delete_page(self, shard: Layout) -> bool:
        """Delete undeleted values of one page; returns whether others are left. Errors as of a layout's `delete`."""
        self.lengths[shard.key] = self.lengths.get(shard.key, 0) - self.undeleted.delete_page(shard)
        return self.undeleted.count(shard.key) > 0

    def count_again(self, shards: Iterable[Layout], room: Room) -> OrderingKeys:
        """Count the entries of these shards from Redis into `room` and the keys returned, and report missing ones."""
        keys, known = OrderingKeys(), self.lengths
        lengths, oldest = dict[str, int](), dict[str, int]()
        shards = [*shards]
        self.latest.begin({shard.key for shard in shards})
        for shard in shards:
            after: Any = None
            seen, undeleted = 0, set[bytes]()
            while values := shard.read(PAGE, after):
                undeleted |= self.undeleted.met(shard.key, values) | self.latest.meet(values)
                waiting = [each for each in values if digest(each[1]) not in undeleted] if undeleted else values
                after, seen = values[-1][0], seen + len(values)
                entries = [entry for entry in entries_of([value for _, value in waiting]) if entry is not None]
                if entries:
                    oldest.setdefault(shard.key, entries[0].accepted_at_ms)
                    keys.enter(entries)
                    room.enter(entries)
            lengths[shard.key] = seen
            self.undeleted.become(shard.key, undeleted)
            self._report_missing(shard, max(known.get(shard.key, 0) - seen, self.latest.end(shard.key)))
        self.lengths, self.oldest = lengths, oldest
        return keys

    def _report_missing(self, shard: Layout, count: int) -> None:
        """Report entries that this proxy did not remove."""
        if count > 0:
            limited.error("buffer=redis key=%s: %d entries that were answered BUFFERED are gone", shard.key, count)
            self._on_missing(count)
