"""Segments in which damage was met: by a start, a read, the scrub or a slave that was to get the bytes.

They are repaired from another broker of the group (`engine/log/upkeep/peer_repair.py`). An engine without replicas only
remembers them.
"""


class SuspectSegments:
    """Bases of segments to check. Methods may be called in any thread."""

    def __init__(self) -> None:
        self._bases: set[int] = set()
        self.can_be_repaired = False
        """Whether another broker can be asked now. Readers wait for a while then, instead of stepping over."""

    def __len__(self) -> int:
        return len(self._bases)

    def add(self, base: int) -> None:
        """Have the segment checked."""
        self._bases.add(base)

    def discard(self, base: int) -> None:
        """The segment is sound, or gone."""
        self._bases.discard(base)

    def all(self) -> list[int]:
        """Their bases, lowest first."""
        return sorted(self._bases.copy())
