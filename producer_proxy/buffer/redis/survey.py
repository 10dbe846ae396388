"""A count of the buffer in a Redis, for tools, whether its proxies run or not. It claims and changes nothing."""

from typing import Any, NamedTuple

from producer_proxy.buffer.entry import EntryError
from producer_proxy.buffer.redis import guard
from producer_proxy.buffer.redis.layouts import LAYOUTS, Layout
from producer_proxy.buffer.redis.slots import PARTS, PREFIX, SLOTS, dead_key, shard_key
from producer_proxy.buffer.value import unpack_value


class Survey(NamedTuple):
    """Contents of the buffer in a Redis.

    Attributes:
        entries: number of entries by slot, of slots with entries. The configuration store names the claiming proxy.
        dead: values on the dead-letter list.
        weaknesses: reasons why this Redis may lose entries.
        faults: keys that are not a buffer of this layout, each with Redis' sentence.
    """

    entries: dict[int, int]
    oldest_at_ms: int | None
    dead: int
    weaknesses: list[str]
    faults: list[str]


def survey(client: Any, layout: str, prefix: str = PREFIX) -> Survey:
    """Count the buffer. Raises redis.RedisError."""
    shards = [
        (slot, LAYOUTS[layout](client, shard_key(prefix, slot, part))) for slot in range(SLOTS) for part in range(PARTS)
    ]
    pipe = client.pipeline(transaction=False)
    for _, shard in shards:
        shard.ask_length(pipe)
    entries: dict[int, int] = {}
    moments, faults = [], []
    for (slot, shard), length in zip(shards, pipe.execute(raise_on_error=False), strict=True):
        if isinstance(length, Exception):
            faults.append(f"{shard.key}: {length}")
        elif length:
            entries[slot] = entries.get(slot, 0) + length
            moments += _accepted_at_ms(shard)
    return Survey(
        entries,
        min(moments, default=None),
        client.llen(dead_key(prefix)),
        list(guard.weaknesses(client).values()),
        faults,
    )


def _accepted_at_ms(shard: Layout) -> list[int]:
    """The time of its first entry; empty when the value is foreign or already drained."""
    try:
        return [unpack_value(value).accepted_at_ms for _, value in shard.read(1)]
    except EntryError:
        return []
