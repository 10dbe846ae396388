"""Readers that the passes of a comparison share: opening one costs a connection and about a second, per topic and pass."""

from collections.abc import Callable, Collection, Mapping

from common.kafka.base import PartitionReader
from common.kafka.records import Partition, Records


class SharedReaders:
    """Gives a reader again that an earlier pass has closed. A reader that has failed is not given again. For one thread.

    Args:
        open_reader: opens a reader; there are as many as are in use at the same time.
    """

    def __init__(self, open_reader: Callable[[], PartitionReader]) -> None:
        self._open_reader = open_reader
        self._idle: list[PartitionReader] = []

    def open(self) -> PartitionReader:
        """A reader without partitions of interest: its user assigns some. Its close() gives it back."""
        return _BorrowedReader(self, self._idle.pop() if self._idle else self._open_reader())

    def give_back(self, reader: PartitionReader) -> None:
        self._idle.append(reader)

    def close(self) -> None:
        """Close all readers that were given back."""
        while self._idle:
            self._idle.pop().close()


class _BorrowedReader(PartitionReader):
    """A reader until its close()."""

    def __init__(self, owner: SharedReaders, reader: PartitionReader) -> None:
        self._owner, self._reader = owner, reader
        self._has_failed = self._is_closed = False

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self._checked(lambda: self._reader.assign(positions))
        self._checked(lambda: self._reader.resume([*positions]))  # an earlier pass has paused what it had read

    def add(self, positions: Mapping[Partition, int]) -> None:
        self._checked(lambda: self._reader.add(positions))

    def remove(self, partitions: Collection[Partition]) -> None:
        self._checked(lambda: self._reader.remove(partitions))

    def pause(self, partitions: Collection[Partition]) -> None:
        self._checked(lambda: self._reader.pause(partitions))

    def resume(self, partitions: Collection[Partition]) -> None:
        self._checked(lambda: self._reader.resume(partitions))

    def poll(self, wait_s: float) -> list[Records]:
        found: list[Records] = []
        self._checked(lambda: found.extend(self._reader.poll(wait_s)))
        return found

    def positions(self) -> dict[Partition, int]:
        return self._reader.positions()

    @property
    def interruptions(self) -> int:
        return self._reader.interruptions

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._has_failed:
            self._reader.close()
        else:
            self._owner.give_back(self._reader)

    def _checked(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException:
            self._has_failed = True
            raise
