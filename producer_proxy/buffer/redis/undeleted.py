"""Values that have left the buffer while Redis refuses to delete them: they are not taken again, only deleted later.

A value is known by a digest of its bytes, so that it is found again through a new connection, at another server and in
either layout. Two equal values have the same id: one of them counts as a copy of the other.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from producer_proxy.buffer.redis.layouts import Layout

DIGEST_BYTES = 16
PAGE = 500


class UndeletedValues:
    """Digests of the values, by the shard's key. Only this process knows them: after a restart the values are sent again."""

    def __init__(self) -> None:
        self._digests: dict[str, set[bytes]] = {}
        self._passed: dict[str, Any] = {}  # by key: the handle up to which all values are undeleted
        self._deleted_to: dict[str, Any] = {}  # by key: the handle up to which values were looked at for a deletion

    def __len__(self) -> int:
        return sum(map(len, self._digests.values()))

    def count(self, key: str) -> int:
        return len(self._digests.get(key, ()))

    def add(self, key: str, values: Iterable[bytes]) -> None:
        self._digests.setdefault(key, set()).update(map(digest, values))
        self._deleted_to.pop(key, None)

    def first_handle(self, key: str) -> Any:
        """The handle after which to read; None: from the start."""
        return self._passed.get(key)

    def without(self, key: str, values: Sequence[tuple[Any, bytes]], after: Any) -> Sequence[tuple[Any, bytes]]:
        """The values that may be taken, of those that were read after a handle."""
        digests = self._digests.get(key)
        if not digests:
            return values
        left = [each for each in values if digest(each[1]) not in digests]
        if not left and after == self._passed.get(key):
            self._passed[key] = values[-1][0]
        return left

    def met(self, key: str, values: Iterable[tuple[Any, bytes]]) -> set[bytes]:
        """The digests of undeleted ones among values that were read."""
        digests = self._digests.get(key)
        return digests.intersection(digest(value) for _, value in values) if digests else set()

    def become(self, key: str, met: set[bytes]) -> None:
        """After a new count of the shard, which has met these: the others are gone."""
        self._restart(key)
        self._digests.pop(key, None)
        if met:
            self._digests[key] = met

    def delete_page(self, shard: Layout) -> int:
        """Delete those of the shard's next page; return their number.

        Raises: HeadChanged, errors of redis-py. `count` says whether some are left.
        """
        key, digests = shard.key, self._digests[shard.key]
        self._passed.pop(key, None)
        values = shard.read(PAGE, self._deleted_to.get(key))
        found = {handle: known for handle, value in values if (known := digest(value)) in digests}
        if found:
            shard.delete(list(found))
            digests.difference_update(found.values())
        if values and digests:
            self._deleted_to[key] = values[-1][0]
        else:  # at the end of the shard: what was not met there is gone
            self._restart(key)
            del self._digests[key]
        return len(found)

    def _restart(self, key: str) -> None:
        self._passed.pop(key, None)
        self._deleted_to.pop(key, None)


def digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=DIGEST_BYTES).digest()
