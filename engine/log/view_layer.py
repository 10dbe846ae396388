"""One layer of the view: changed keys, and their order for scans."""

from bisect import bisect_left, insort
from itertools import islice

INSERTED_MAX = 256
"""New keys that a scan puts into their places one by one; more of them are sorted together."""


class ViewLayer:
    """Changes that no checkpoint includes yet. Keys are only added; None as a value removes the key from the view.

    The order is made by scans, so that keys that are never scanned cost nothing but their place in the dict. A scan
    costs its result and the keys that are new since the last one, not the whole layer.
    """

    __slots__ = ("_sorted", "changes")

    def __init__(self) -> None:
        self.changes: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] = []

    def between(self, start: bytes, end: bytes) -> list[bytes]:
        """The keys with start <= key < end, in order."""
        known = self._sorted
        if len(known) < len(self.changes):
            # A dict keeps the order of arrival, so the new ones are its last ones.
            fresh = list(islice(reversed(self.changes), len(self.changes) - len(known)))
            if len(fresh) <= INSERTED_MAX:
                for key in fresh:
                    insort(known, key)
            else:
                known += fresh
                known.sort()
        return known[bisect_left(known, start) : bisect_left(known, end)]
