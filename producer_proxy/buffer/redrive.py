"""A dead-letter list as a store, so that a drainer sends its entries again, whether their proxy runs or not."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import gevent

from producer_proxy.buffer import blocks
from producer_proxy.buffer.disk import dead
from producer_proxy.buffer.entry import BufferEntry, decode
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import BufferStore, KeptEntry

LIST_BYTES_MAX = 1 << 40
ATTEMPTS, PAUSE_S = 5, 0.1


class BufferedDeadLetters(BufferStore):
    """The entries of a list as of its opening. What the engine refuses again stays on the list.

    Args:
        found: the entries with their handles, in the order of the list.
        topic: only its entries; None: those of all topics.
    Attributes:
        refused: number of entries that were refused again.
        fault_of_list: why entries that the engine has could not be removed from the list; None: they are.
    """

    name = "dead letters"

    def __init__(self, found: Iterable[tuple[Any, BufferEntry]], topic: str | None, now_ms: Callable[[], int]) -> None:
        super().__init__(RoomLimits(LIST_BYTES_MAX, LIST_BYTES_MAX, 100), now_ms)
        self._left = {handle: entry for handle, entry in found if topic in (None, entry.topic)}
        self._unremoved: list[Any] = []
        self.refused = 0
        self.fault_of_list: str | None = None
        self.found(list(self._left.values()))

    def take(self, skip: Collection[str], count_max: int, bytes_max: int) -> list[KeptEntry]:
        taken: list[KeptEntry] = []
        for handle, entry in self._left.items():
            if entry.topic in skip:
                continue
            bytes_max -= entry.size_bytes
            if len(taken) == count_max or (taken and bytes_max < 0):
                break
            taken.append(KeptEntry(handle, entry))
        return taken

    def dead_letter(self, kept: Sequence[KeptEntry], reason: str) -> None:
        self.refused += len(kept)
        self._forget(kept)
        self._leave([each.entry for each in kept])

    def oldest_at_ms(self) -> int | None:
        return next((entry.accepted_at_ms for entry in self._left.values()), None)

    @property
    def undeleted(self) -> int:
        return len(self._unremoved)

    def close(self) -> None:
        """Remove what the list did not let go, in ATTEMPTS attempts with growing pauses. Nothing is open."""
        for attempt in range(ATTEMPTS):
            self._remove_all()
            if not self._unremoved:
                break
            gevent.sleep(PAUSE_S * 2**attempt)

    def _delete(self, kept: Sequence[KeptEntry]) -> Sequence[KeptEntry]:
        self._forget(kept)
        self._unremoved += [each.handle for each in kept]
        self._remove_all()
        return kept

    def _remove_all(self) -> None:
        """Remove the entries that the engine has. Those that the list does not let go are tried with the next ones."""
        if self._unremoved:
            try:
                self._remove(self._unremoved)
            except OSError as error:
                self.fault_of_list = str(error)
            else:
                self._unremoved, self.fault_of_list = [], None

    def _forget(self, kept: Sequence[KeptEntry]) -> None:
        for each in kept:
            del self._left[each.handle]

    def _write(self, entries: Sequence[BufferEntry]) -> None:
        raise NotImplementedError

    def _dead_letter(self, kept: Sequence[KeptEntry], reason: str) -> None:
        raise NotImplementedError

    @abstractmethod
    def _remove(self, handles: Sequence[Any]) -> None:
        """Remove entries from the list. Raises OSError."""


class DeadFile(BufferedDeadLetters):
    """The list of a disk buffer."""

    def __init__(self, directory: Path, topic: str | None, now_ms: Callable[[], int]) -> None:
        self._directory = directory
        super().__init__(((each.offset, each.entry) for each in dead.read(directory)), topic, now_ms)

    def _remove(self, handles: Sequence[int]) -> None:
        dead.mark_done(self._directory, handles)


class DeadRedisList(BufferedDeadLetters):
    """The list in a Redis. Values that are no entries stay.

    Raises: errors of redis-py.
    """

    def __init__(self, client: Any, key: str, topic: str | None, now_ms: Callable[[], int]) -> None:
        self._client, self._key = client, key
        super().__init__(_entries(client.lrange(key, 0, -1)), topic, now_ms)

    def _remove(self, handles: Sequence[tuple[int, bytes]]) -> None:
        pipe = self._client.pipeline(transaction=False)
        for _, value in handles:
            pipe.lrem(self._key, 1, value)
        try:
            pipe.execute()
        except Exception as error:  # of redis-py, which is an extra
            raise OSError(str(error)) from error


def _entries(values: Iterable[bytes]) -> Iterable[tuple[tuple[int, bytes], BufferEntry]]:
    for number, value in enumerate(values):
        try:
            yield (number, value), decode(blocks.unpack_dead(value)[2])
        except ValueError:
            continue
