"""Bytes of a simulated file: what readers see, and what a power cut leaves of them."""

from random import Random

SECTOR = 512


class Content:
    """A file's bytes as readers see them, as the disk has them, and the changes in between.

    Attributes:
        changed: number of changes ever made; `sync(changed)` makes those made so far durable.
    """

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.changes: list[tuple[str, int, bytes]] = []
        self.changed = 0

    def apply(self, target: bytearray, kind: str, at: int, data: bytes) -> None:
        """Make one change."""
        if kind == "size":
            if at < len(target):
                del target[at:]
            target.extend(bytes(at - len(target)))
            return
        if len(target) < at + len(data):
            target.extend(bytes(at + len(data) - len(target)))
        target[at : at + len(data)] = data

    def change(self, kind: str, at: int, data: bytes = b"") -> None:
        """Make a change that is not durable yet."""
        self.apply(self.seen, kind, at, data)
        self.changes.append((kind, at, data))
        self.changed += 1

    def sync(self, until: int | None = None) -> None:
        """Make the changes durable: all of them, or those before number `until`."""
        count = len(self.changes) if until is None else max(0, len(self.changes) - (self.changed - until))
        for change in self.changes[:count]:
            self.apply(self.durable, *change)
        del self.changes[:count]

    def drop_changes(self) -> None:
        """A sync has failed. As Linux does: readers still see the bytes, but no later sync writes them."""
        self.changes.clear()

    def unsynced_below(self, end: int) -> int | None:
        """The lowest byte below `end` that readers see and the disk does not have; None: there is none."""
        seen, durable = self.seen[:end], self.durable[:end]
        if seen == durable:
            return None
        return next((at for at in range(min(len(seen), len(durable))) if seen[at] != durable[at]), len(durable))

    def crash(self, random: Random | None) -> None:
        """Go back to the durable bytes, or to these and any part of the changes since, torn at sectors.

        A sector that reaches the disk has all that was written to it before.
        """
        cached = bytearray(self.durable)
        for kind, at, data in self.changes if random else []:
            assert random is not None
            self.apply(cached, kind, at, data)
            chance = random.random()
            if kind == "size":
                if chance < 0.7:
                    self.apply(self.durable, kind, at, data)
            elif chance < 0.4:
                self._write_back(cached, at, at + len(data))
            elif chance < 0.8:
                for start in range(at, at + len(data), SECTOR):
                    if random.random() < 0.5:
                        self._write_back(cached, start, min(start + SECTOR, at + len(data)))
        self.seen = bytearray(self.durable)
        self.changes.clear()

    def _write_back(self, cached: bytearray, at: int, end: int) -> None:
        """Write the sectors with these bytes to the disk, as the page cache has them."""
        at -= at % SECTOR
        self.apply(self.durable, "write", at, bytes(cached[at : end + -end % SECTOR]))
