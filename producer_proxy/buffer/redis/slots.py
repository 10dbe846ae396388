"""Which keys belong to which proxy: a fixed number of slots, each claimed in the configuration store by one process at a time.

A proxy writes to one slot, its own. The slots of dead proxies are claimed by whoever finds something in them, drained, and let go.
The claims are never in Redis: at `maxmemory` it takes no lock.
"""

from collections.abc import Callable
from typing import Any

from common.config.store import ConfigStore
from producer_proxy.buffer.redis.layouts import Layout

PREFIX = "penstock:buffer"
SLOTS = 64
PARTS = 4  # shards a slot: so many topics that the engine refuses hold up at most their own shard


def shard_key(prefix: str, slot: int, part: int) -> str:
    return f"{prefix}:{{{slot}.{part}}}"


def dead_key(prefix: str) -> str:
    """Of the dead-letter list, one for all proxies."""
    return f"{prefix}:dead"


class NoSlot(Exception):
    """All are claimed: there are more than SLOTS proxies."""


class BufferSlots:
    """
    Args:
        make: a shard's layout by its key.
    Attributes:
        own: the slot to write to; None: none claimed yet.
        adopted: slots of dead proxies that this one drains.
    """

    def __init__(self, config: ConfigStore, prefix: str, make: Callable[[str], Layout]) -> None:
        self._config, self._prefix, self._make = config, prefix, make
        self.own: int | None = None
        self.adopted: set[int] = set()
        self._shards: dict[int, list[Layout]] = {}

    def claim_own(self) -> None:
        """The first that is free. May raise StoreUnavailable, NoSlot."""
        for slot in range(SLOTS):
            if slot not in self.adopted and self._config.claim(self._claim(slot)):
                self.own = slot
                return
        raise NoSlot(f"all {SLOTS} slots are claimed by other proxies")

    def holds(self, slot: int) -> bool:
        """Not while the configuration store is away: then nobody can tell, and nothing is drained."""
        return self._config.holds(self._claim(slot))

    def lost(self, slot: int) -> bool:
        """Not while the configuration store is away: what lies there still counts, and keys stay diverted."""
        return not self.holds(slot) and self._config.unavailable_since_ms is None

    def writable(self) -> bool:
        """Also while the configuration store is away: another proxy may then drain beside us, which costs copies, not messages."""
        return self.own is not None and not self.lost(self.own)

    def shards(self, slot: int) -> list[Layout]:
        if slot not in self._shards:
            self._shards[slot] = [self._make(shard_key(self._prefix, slot, part)) for part in range(PARTS)]
        return self._shards[slot]

    def ours(self) -> list[int]:
        """Those of dead proxies first: what they hold is older."""
        return [*sorted(self.adopted), *([] if self.own is None else [self.own])]

    def counted(self) -> list[Layout]:
        """The shards of all our slots."""
        return [shard for slot in self.ours() for shard in self.shards(slot)]

    def drainable(self) -> list[Layout]:
        """Those of them that are ours for certain."""
        return [shard for slot in self.ours() if self.holds(slot) for shard in self.shards(slot)]

    def dead_key(self) -> str:
        return dead_key(self._prefix)

    def find_orphans(self, client: Any) -> bool:
        """Claim the slots of others that hold something and that nobody claims any more; whether there were any. May raise."""
        strangers = [slot for slot in range(SLOTS) if slot != self.own and slot not in self.adopted]
        pipe = client.pipeline(transaction=False)
        for slot in strangers:
            for shard in self.shards(slot):
                shard.ask_length(pipe)
        lengths = pipe.execute(raise_on_error=False)
        found = False
        for number, slot in enumerate(strangers):
            filled = any(
                isinstance(length, int) and length for length in lengths[number * PARTS : (number + 1) * PARTS]
            )
            if filled and self._config.claim(self._claim(slot)):
                self.adopted.add(slot)
                self._shards.pop(slot)  # with what it remembers of an earlier time
                found = True
        return found

    def let_go(self, slot: int) -> None:
        self.adopted.discard(slot)
        self._config.release(self._claim(slot))

    def close(self) -> None:
        for slot in self.ours():
            self._config.release(self._claim(slot))

    def forget(self) -> None:
        """What the shards remember of their lists: they are to be read anew."""
        self._shards.clear()

    def _claim(self, slot: int) -> str:
        return f"{self._prefix}/slot/{slot}"
