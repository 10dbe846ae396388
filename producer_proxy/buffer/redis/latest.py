"""The values that this process has put and deleted last, by digest.

A Redis that takes another's place may have as many values as were counted, and still other ones: a replica that lagged
lacks the last puts, and has what was deleted last; an older copy has what was deleted long ago. A count finds both: a
put value that is not met is missing, and a deleted one that is met is not taken again.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from producer_proxy.buffer.redis.undeleted import digest

VALUES_MAX = 16_384  # of each sort, some 2 MiB: more than a replica lags by. Older ones are known by their number only


class LatestValues:
    """What is put has the key of its shard: those of a slot that is lost are dropped by the next count."""

    def __init__(self) -> None:
        self._put: OrderedDict[bytes, str] = OrderedDict()
        self._deleted: OrderedDict[bytes, None] = OrderedDict()
        self._unmet: dict[bytes, str] = {}

    def put(self, key: str, values: Iterable[bytes]) -> None:
        for value in values:
            self._put[digest(value)] = key
        while len(self._put) > VALUES_MAX:
            self._put.popitem(last=False)

    def delete(self, values: Iterable[bytes]) -> None:
        for each in map(digest, values):
            self._put.pop(each, None)
            self._deleted[each] = None
        while len(self._deleted) > VALUES_MAX:
            self._deleted.popitem(last=False)

    def begin(self, keys: Collection[str]) -> None:
        """A count of some shards begins: of others nothing is known any more."""
        for each in [each for each, key in self._put.items() if key not in keys]:
            del self._put[each]
        self._unmet = dict(self._put)

    def meet(self, values: Sequence[tuple[Any, bytes]]) -> set[bytes]:
        """These were read. Returns the digests of those that were deleted before."""
        if not self._unmet and not self._deleted:
            return set()
        met = {digest(value) for _, value in values}
        for each in met.intersection(self._unmet):
            del self._unmet[each]
        return met.intersection(self._deleted)

    def end(self, key: str) -> int:
        """A shard was read to its end. Returns how many of its latest values were not met; they are forgotten."""
        missing = [each for each, of in self._unmet.items() if of == key]
        for each in missing:
            del self._unmet[each], self._put[each]
        return len(missing)
