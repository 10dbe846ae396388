"""Ids that several intents may have, as those of a message whose caller has sent again after an unknown outcome.

A look-up finds such an id whichever of the intents it belongs to. So how often the primary and the secondary have it
decides, and entries of one id are written one after another.
"""

from collections import deque
from collections.abc import Iterable

from producer_proxy.targets.base import UNCOUNTABLE

IDS_MAX = 10_000
TRIES_MAX = 3
"""Counts that a side cannot make, after which an id that is found counts as its entry's. A side that is away is waited for."""

Id = tuple[str, str]
"""Topic, and id as senders see it."""


class RepeatedIds:
    """Ids of entries that were found at the primary, the last ones."""

    def __init__(self) -> None:
        self._ids: set[Id] = set()
        self._order: deque[Id] = deque()
        self._tries: dict[int, int] = {}  # by position

    def note(self, id_: Id) -> None:
        """An entry of this id was found at the primary by its id alone."""
        if id_ in self._ids:
            return
        self._ids.add(id_)
        self._order.append(id_)
        if len(self._order) > IDS_MAX:
            self._ids.remove(self._order.popleft())

    def __contains__(self, id_: Id) -> bool:
        return id_ in self._ids

    def lacks(self, position: int, primary: int | None, secondary: int | None) -> bool | None:
        """Whether the secondary has fewer copies than the primary; None: ask again.

        Args:
            primary, secondary: the sides' answers to `count_copies`.
        """
        if primary is None or secondary is None:
            return None
        if UNCOUNTABLE not in (primary, secondary):
            self._tries.pop(position, None)
            return secondary < primary
        self._tries[position] = self._tries.get(position, 0) + 1
        return None if self._tries[position] < TRIES_MAX else False

    def forget(self, positions: Iterable[int]) -> None:
        """Entries have left."""
        for position in positions:
            self._tries.pop(position, None)
