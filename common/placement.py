"""Which broker group holds a queue: rendezvous hashing, so that every process knows it from the groups' names alone.

Each group has a score for each queue and the highest one wins. A group that is added takes its share from all others, one that is
removed leaves its queues to all others, and nothing else moves (Thaler and Ravishankar, "A name-based mapping scheme for
rendezvous", 1996).
"""

from collections.abc import Sequence
from hashlib import blake2b

GROUPS_MAX = 64  # a queue's home is kept as one byte, and a pull asks them all

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def topic_hash(name: bytes) -> int:
    """What stands for the topic in placement and in receipts: the first 8 bytes of its BLAKE2b, little-endian."""
    return int.from_bytes(blake2b(name).digest()[:8], "little")


class Placement:
    """The placement over these groups; a home is the group's place in `names`. The order of `names` does not matter to who wins."""

    def __init__(self, names: Sequence[str]):
        if not 1 <= len(names) <= GROUPS_MAX or len(set(names)) != len(names):
            raise ValueError(f"1 to {GROUPS_MAX} broker groups of different names")
        self.names = tuple(names)
        self._seeds = [int.from_bytes(blake2b(name.encode(), person=b"group").digest()[:8], "little") for name in names]

    def home(self, topic: int, queue: int) -> int:
        """The home of one queue; `topic` is the name's `topic_hash`."""
        if len(self._seeds) == 1:
            return 0
        place = (topic + queue * _GOLDEN) & _MASK
        best, home = -1, 0
        for number, seed in enumerate(self._seeds):
            score = _mixed(place ^ seed)
            if score > best:
                best, home = score, number
        return home

    def homes(self, topic: int, queues: int) -> bytes:
        """The home of each queue of a topic, a byte each."""
        return bytes([self.home(topic, queue) for queue in range(queues)])

    def nearest(self, home: int, topic: int, queue: int, queues: int) -> int | None:
        """The first of a topic's queues, from `queue` on and round again, that lives in this group; None: none does."""
        steps = ((queue + step) % queues for step in range(queues))
        return next((each for each in steps if self.home(topic, each) == home), None)


def _mixed(x: int) -> int:
    """The finalizer of splitmix64: every bit of the input moves about half of the output's."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
