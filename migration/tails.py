"""The tail of a partition behind a copy: whether it holds a record that is to be copied at all.

A copier's position is in the engine's log, with the last record that was copied. Control records, aborted ones and those
that the reverse copy has made of the topic's own messages move no position, so the position may stay below the
partition's end for ever. Where a copy has stalled, the tail is read: up to its first record of another kind, everything
counts as copied.
"""

import time
from collections.abc import Callable, Mapping

from common.kafka.base import PartitionReader
from common.kafka.copy_mark import is_copy_of
from common.kafka.errors import KafkaFault
from common.kafka.records import Partition, Records

WAIT_S = 1.0


EnginePlace = tuple[str, int]
"""Id of the engine's log, and of the topic there."""


class CopyTails:
    """
    Args:
        open_reader: opens a reader of committed records, at the first tail.
    """

    def __init__(self, open_reader: Callable[[], PartitionReader]) -> None:
        self._open_reader = open_reader
        self._reader: PartitionReader | None = None
        self._before: dict[Partition, int] = {}
        self._passed: dict[Partition, tuple[int, int, bool]] = {}

    def passed(
        self, copied: Mapping[Partition, int], ends: Mapping[Partition, int], places: Mapping[Partition, EnginePlace]
    ) -> dict[Partition, int]:
        """The positions, moved to the first record that is not copied, or to the end where there is none.

        A partition is read once its position has not moved since the last call. Blocks for WAIT_S at most.

        Args:
            ends: stable ends; a tail is not read beyond them.
            places: the topic of the engine that a partition is copied into.
        Raises:
            KafkaFault
        """
        stalled = {each: at for each, at in copied.items() if at < ends[each] and self._before.get(each) == at}
        self._before = dict(copied)
        found = dict(copied)
        wanted: dict[Partition, int] = {}
        for each, at in stalled.items():
            begun, reached, is_record = self._passed.get(each, (-1, -1, False))
            if begun != at:
                self._passed[each] = (at, at, False)
                wanted[each] = at
            elif not is_record and reached < ends[each]:
                wanted[each] = reached
        if wanted:
            self._read(wanted, ends, places)
        return found | {each: self._passed[each][1] for each in stalled}

    def uncopied(self, topic: str, positions: Mapping[Partition, int]) -> tuple[tuple[int, int], ...]:
        """Partitions of the topic whose record at the position is known to be one that the copy lacks, with its offset."""
        return tuple(
            (each.number, reached)
            for each, (_, reached, is_record) in sorted(self._passed.items())
            if each.topic == topic and is_record and positions.get(each) == reached
        )

    def _read(
        self, wanted: dict[Partition, int], ends: Mapping[Partition, int], places: Mapping[Partition, EnginePlace]
    ) -> None:
        try:
            self._read_from(self._reader or self._opened(), wanted, ends, places)
        except KafkaFault:
            self.close()  # the next call opens another reader, by the cluster's password as it is then
            raise

    def _opened(self) -> PartitionReader:
        self._reader = self._open_reader()
        return self._reader

    def _read_from(
        self, reader: PartitionReader, wanted: dict[Partition, int], ends: Mapping[Partition, int],
        places: Mapping[Partition, EnginePlace],
    ) -> None:  # fmt: skip
        reader.assign(wanted)
        deadline = time.monotonic() + WAIT_S
        while wanted and time.monotonic() < deadline:
            for fetched in reader.poll(0.1):
                each = fetched.partition
                if each not in wanted:
                    continue
                begun = self._passed[each][0]
                first = _first_to_copy(fetched, places[each])
                is_record = first is not None
                reached = fetched.next_offset if first is None else first
                self._passed[each] = (begun, reached, is_record)
                if is_record or reached >= ends[each]:
                    del wanted[each]

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _first_to_copy(fetched: Records, place: EnginePlace) -> int | None:
    """The offset of the first record that a copier does not leave out; None: there is none."""
    for index, offset in enumerate(fetched.offsets):
        if not is_copy_of(*place, fetched.headers[index], fetched.keys[index], fetched.values[index]):
            return offset
    return None
