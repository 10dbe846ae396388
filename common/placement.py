"""Placement of queues on broker groups: rendezvous hashing, so that every process computes it from the groups' names
and the few topics that are placed on some of them.

Each group has a score for each queue, and the highest score wins. An added group takes its share from all others. A
removed group leaves its queues to all others. No other queue moves. See Thaler and Ravishankar, "A name-based mapping
scheme for rendezvous", 1996.

A placed topic has ranges of queues, each of which lives in the broker groups that its range names. A change of its
groups adds a range and leaves the others alone, so no queue ever moves: docs/design/0045-traffic-scheduling.md.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from common.keyhash import queue_of

GROUPS_MAX = 64  # a queue's home is stored in one byte, and a pull asks every group

ID_SLOTS = 256
"""Ids are spread over so many slots, and each has its home."""

_IDS = b"\0ids"
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class QueueRange(NamedTuple):
    """Queues of a topic from `first` on, up to the next range. `broker_groups`: those that hold them; empty: all."""

    first: int
    broker_groups: tuple[str, ...]


Ranges = tuple[QueueRange, ...]
"""The ranges of one topic in the order of their queues; the first one begins at queue 0. Empty: one range in all groups."""

PlacedTopics = Mapping[int, Ranges]
"""The ranges of each placed topic, by the hash of its name."""

NONE_PLACED: PlacedTopics = {}


def topic_hash(name: bytes) -> int:
    """The topic's number in placement and receipts: the first 8 bytes of its BLAKE2b, little-endian."""
    return int.from_bytes(blake2b(name).digest()[:8], "little")


def first_queue(placed: PlacedTopics, topic: str) -> int:
    """The first queue of a topic that takes new messages; those before it are only read."""
    ranges = placed.get(topic_hash(topic.encode()))
    return ranges[-1].first if ranges else 0


IDS_HASH = topic_hash(_IDS)
"""Stands for a topic whose queues are the slots of ids. No topic has this name."""


def home_of_id(shown: bytes, id_homes: bytes) -> int:
    """The group that decides about an id, whatever the topic and the key. `id_homes`: of the slots of ids."""
    return id_homes[queue_of(shown, 1 << 31) % ID_SLOTS]


def queue_of_id(shown: bytes, homes: bytes, id_homes: bytes, first_queue: int = 0) -> int:
    """The queue of a message without a key whose id is checked, for broker groups.

    It is at the id's home, which depends on neither the topic's number of queues nor the key, so copies meet there. Where
    the home has no queue of the topic, the id alone chooses the queue, as long as the topic has no more queues.

    Args:
        homes: of the topic's queues. id_homes: of the slots of ids.
        first_queue: the first queue that takes new messages.
    """
    first = first_queue + queue_of(shown, 1 << 31) // ID_SLOTS % (len(homes) - first_queue)
    home = home_of_id(shown, id_homes)
    found = homes.find(home, first)
    if found < 0:
        found = homes.find(home, first_queue)
    return first if found < 0 else found


class Placement:
    """The placement over these groups.

    A home is the group's index in `names`; the order of `names` does not change the winners.

    Args:
        placed: looked up anew each time, so it may be a mapping that changes. A range of which no group is among `names`
            lives in all groups.
    """

    def __init__(self, names: Sequence[str], placed: PlacedTopics = NONE_PLACED):
        if not 1 <= len(names) <= GROUPS_MAX or len(set(names)) != len(names):
            raise ValueError(f"{len(names)} broker groups: use 1 to {GROUPS_MAX} groups with different names")
        self.names = tuple(names)
        seeds = [int.from_bytes(blake2b(name.encode(), person=b"group").digest()[:8], "little") for name in names]
        self._all = list(enumerate(seeds))
        self._some: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        self._placed = placed

    def home(self, topic: int, queue: int) -> int:
        """The home of one queue; `topic` is the name's `topic_hash`."""
        if len(self._all) == 1:
            return 0
        ranges = self._placed.get(topic)
        among = self._all if ranges is None else self._in(ranges, queue)
        place = (topic + queue * _GOLDEN) & _MASK
        best, home = -1, 0
        for number, seed in among:
            score = _mixed(place ^ seed)
            if score > best:
                best, home = score, number
        return home

    def _in(self, ranges: Ranges, queue: int) -> list[tuple[int, int]]:
        """Number and seed of the groups that may hold the queue."""
        groups = next((each.broker_groups for each in reversed(ranges) if each.first <= queue), ())
        found = self._some.get(groups)
        if found is None:
            own = [each for each in self._all if self.names[each[0]] in groups]
            found = self._some[groups] = own or self._all
        return found

    def homes(self, topic: int, queues: int) -> bytes:
        """The home of each queue of a topic, one byte per queue."""
        return bytes([self.home(topic, queue) for queue in range(queues)])

    def by_home(self, topic: int, queues: int) -> dict[int, list[int]]:
        """The queues of a topic that each home has; homes without any are left out."""
        found: dict[int, list[int]] = {}
        for queue, home in enumerate(self.homes(topic, queues)):
            found.setdefault(home, []).append(queue)
        return found

    def nearest(self, home: int, topic: int, queue: int, queues: int) -> int | None:
        """The topic's first queue that this group holds, from `queue` on with wrap-around; None: it holds none."""
        steps = ((queue + step) % queues for step in range(queues))
        return next((each for each in steps if self.home(topic, each) == home), None)


def _mixed(x: int) -> int:
    """The finalizer of splitmix64: every input bit changes about half of the output bits."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
