"""Slots: the keys in Redis that belong to one proxy. Each slot is claimed in the configuration store by one process at
a time.

The claims are those of one cluster, so a Redis is the buffer of one: a key has its id.

A proxy writes to its own slot only. A proxy that finds entries in the slot of a stopped one claims it, drains it, and
releases it. Claims are never in Redis: at `maxmemory` Redis takes no lock.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import ResponseError

from common.config.errors import StoreDamaged, StoreUnavailable
from common.config.store import ConfigStore
from common.keyhash import murmur2
from common.limited_log import LimitedLog
from producer_proxy.buffer.redis.layouts import Layout

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.buffer"))

PREFIX = "penstock:buffer"
SLOTS = 64
PARTS = 4  # shards per slot: topics that the engine refuses delay only their own shard


def shard_key(prefix: str, slot: int, part: int) -> str:
    return f"{prefix}:{{{slot}.{part}}}"


def dead_key(prefix: str) -> str:
    """The key of the dead-letter list, which all proxies share."""
    return f"{prefix}:dead"


def owner_key(prefix: str) -> str:
    """The key with the id of the cluster whose proxies buffer here."""
    return f"{prefix}:owner"


def id_key(prefix: str) -> str:
    """The key with a random text that tells this Redis from another, and from itself before it was emptied."""
    return f"{prefix}:id"


def part_of(topic: str) -> int:
    """The shard of a topic in each slot."""
    return murmur2(topic.encode()) % PARTS


class BufferSlots:
    """Claims of one proxy, and the shards of its slots.

    Args:
        make: makes a shard's layout from its key.
    Attributes:
        own: the slot to write to; None: none claimed yet.
        adopted: slots of stopped proxies that this one drains.
        elsewhere: parts that may have entries, by slot, of the slots that this proxy does not drain.
        missing: the reason why there is no slot to write to, as a sentence: there are more than SLOTS proxies.
    """

    def __init__(self, config: ConfigStore, prefix: str, make: Callable[[str], Layout]) -> None:
        self._config, self._prefix, self._make = config, prefix, make
        self.own: int | None = None
        self.adopted: set[int] = set()
        self.elsewhere: dict[int, set[int]] = {}
        self.missing: str | None = None
        self._shards: dict[int, list[Layout]] = {}
        self._cluster: str | None = None

    def other_owner(self, client: Any) -> str | None:
        """The reason why this Redis may not be used, as a sentence, when it is the buffer of another cluster.

        A Redis without an owner becomes this cluster's, unless it refuses that. May raise errors of redis-py.
        """
        if self._cluster is None:
            with suppress(StoreUnavailable, StoreDamaged):
                identity = self._config.identity()
                self._cluster = identity and identity.cluster
        if self._cluster is None:  # a configuration without an entry has no topic with a buffer
            return None
        key = owner_key(self._prefix)
        try:
            owner = client.get(key)
            if owner is None:
                client.set(key, self._cluster, nx=True)
                owner = client.get(key)
        except ResponseError:  # no room, no permission: a mark protects from a mistake, and is not needed for a message
            return None
        owner = "" if owner is None else owner.decode(errors="replace")
        if owner in ("", self._cluster):
            return None
        return (
            f"this Redis is the buffer of another cluster, {owner!r}, and this one is {self._cluster!r}: give each its own"
            f" Redis or database; if the other one is no more, delete the key {key}"
        )

    def redis_id(self, client: Any) -> str | None:
        """The text that tells this Redis from another one; None: it refuses to keep it. May raise errors of redis-py."""
        key = id_key(self._prefix)
        try:
            found = client.get(key)
            if found is None:
                client.set(key, secrets.token_hex(8), nx=True)
                found = client.get(key)
        except ResponseError:
            return None
        return None if found is None else str(found.decode(errors="replace"))

    def claim_own(self) -> bool:
        """Claim the first free slot; returns whether there was one. May raise StoreUnavailable."""
        for slot in range(SLOTS):
            if slot not in self.adopted and self._config.claim(self._claim(slot), by_proxy=True):
                self.own, self.missing = slot, None
                return True
        self.missing = f"all {SLOTS} slots are claimed by other proxies: stop one"
        return False

    def holds(self, slot: int) -> bool:
        """Whether the claim is known to hold. False while the configuration store is away; then nothing is drained."""
        return self._config.holds(self._claim(slot))

    def lost(self, slot: int) -> bool:
        """Whether the claim is known to be lost.

        False while the configuration store is away: entries still count, and keys stay diverted.
        """
        return not self.holds(slot) and self._config.unavailable_since_ms is None

    def writable(self) -> bool:
        """True also while the configuration store is away: another proxy may then drain the slot too, which costs
        copies, not messages.
        """
        return self.own is not None and not self.lost(self.own)

    def shards(self, slot: int) -> list[Layout]:
        if slot not in self._shards:
            self._shards[slot] = [self._make(shard_key(self._prefix, slot, part)) for part in range(PARTS)]
        return self._shards[slot]

    def shard_of(self, topic: str) -> Layout:
        """The own shard of a topic."""
        assert self.own is not None
        return self.shards(self.own)[part_of(topic)]

    def ours(self) -> list[int]:
        """The slots that this proxy drains, those of stopped proxies first: their entries are older."""
        return [*sorted(self.adopted), *([] if self.own is None else [self.own])]

    def counted(self) -> list[Layout]:
        """The shards of all slots of `ours()`."""
        return [shard for slot in self.ours() for shard in self.shards(slot)]

    def drainable(self) -> list[Layout]:
        """The shards of those slots whose claim is known to hold."""
        return [shard for slot in self.ours() if self.holds(slot) for shard in self.shards(slot)]

    def dead_key(self) -> str:
        return dead_key(self._prefix)

    def look_after(self, client: Any, lengths: Mapping[str, int]) -> bool:
        """Claim a slot to write to, release adopted ones that are empty, and adopt those of stopped proxies.

        Args:
            lengths: number of values by the shard's key.
        Returns: whether the slots are others now. May raise StoreUnavailable, errors of redis-py.
        """
        is_changed = not self.writable() and self.claim_own()
        for slot in list(self.adopted):
            if not any(lengths.get(shard.key) for shard in self.shards(slot)) or self.lost(slot):
                self.release(slot)
                is_changed = True
        with suppress(StoreUnavailable):  # then no slot can be claimed now
            if self.find_orphans(client):
                limited.warning("buffer=redis: drains slots %s of stopped proxies", sorted(self.adopted))
                is_changed = True
        return is_changed

    def find_orphans(self, client: Any) -> bool:
        """Claim unclaimed slots of others that hold entries; returns whether there were any. May raise."""
        others = [slot for slot in range(SLOTS) if slot != self.own and slot not in self.adopted]
        pipe = client.pipeline(transaction=False)
        for slot in others:
            for shard in self.shards(slot):
                shard.ask_length(pipe)
        answers = pipe.execute(raise_on_error=False)
        lengths = {slot: answers[number * PARTS : (number + 1) * PARTS] for number, slot in enumerate(others)}
        self.elsewhere = {slot: parts for slot, own in lengths.items() if (parts := _filled(own))}
        found = False
        for slot in [*self.elsewhere]:
            filled = any(isinstance(length, int) and length for length in lengths[slot])
            if filled and self._config.claim(self._claim(slot), by_proxy=True):
                self.adopted.add(slot)
                self._shards.pop(slot)  # its state is from an earlier claim
                del self.elsewhere[slot]
                found = True
        return found

    def release(self, slot: int) -> None:
        self.adopted.discard(slot)
        self._config.release(self._claim(slot))

    def close(self) -> None:
        for slot in self.ours():
            self._config.release(self._claim(slot))

    def forget(self) -> None:
        """Drop the shards' state: their lists must be read again."""
        self._shards.clear()

    def _claim(self, slot: int) -> str:
        return f"{self._prefix}/slot/{slot}"


def _filled(lengths: Sequence[int | Exception]) -> set[int]:
    """The parts that may have entries: a foreign key has none, and of one that cannot be asked nothing is known."""
    return {part for part, length in enumerate(lengths) if length and not str(length).startswith("WRONGTYPE")}
