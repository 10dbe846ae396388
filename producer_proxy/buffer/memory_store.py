"""A store in memory, for tests: same interface; its entries end with the process."""

from collections.abc import Callable, Collection, Sequence

from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferUnavailable
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import BufferStore, KeptEntry


class BufferMemoryStore(BufferStore):
    """The store; while `broken` is a sentence, it refuses all entries."""

    name = "memory"
    broken: str | None = None

    def __init__(self, limits: RoomLimits, now_ms: Callable[[], int]) -> None:
        super().__init__(limits, now_ms)
        self._entries: dict[int, BufferEntry] = {}
        self._last = 0
        self.dead: list[tuple[str, BufferEntry]] = []

    def take(self, skip: Collection[str], count_max: int, bytes_max: int) -> list[KeptEntry]:
        taken: list[KeptEntry] = []
        for number, entry in self._entries.items():
            if entry.topic in skip:
                continue
            bytes_max -= entry.size_bytes
            if len(taken) == count_max or (taken and bytes_max < 0):
                break
            taken.append(KeptEntry(number, entry))
        return taken

    def oldest_at_ms(self) -> int | None:
        return next((entry.accepted_at_ms for entry in self._entries.values()), None)

    def fault(self) -> str | None:
        return self.broken

    @property
    def dead_count(self) -> int:
        return len(self.dead)

    def close(self) -> None:
        pass

    def _write(self, entries: Sequence[BufferEntry]) -> None:
        if self.broken:
            raise BufferUnavailable(self.broken)
        for entry in entries:
            self._last += 1
            self._entries[self._last] = entry

    def _delete(self, kept: Sequence[KeptEntry]) -> Sequence[KeptEntry]:
        for each in kept:
            del self._entries[each.handle]
        return kept

    def _dead_letter(self, kept: Sequence[KeptEntry], reason: str) -> None:
        self.dead += [(reason, each.entry) for each in kept]
