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
from kafka_bridge.copy_in.core import unstorable
from kafka_bridge.copy_in.messages import storing_fault

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
        self._faults: dict[Partition, str] = {}

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

    def unstorable(self, topic: str, positions: Mapping[Partition, int]) -> dict[int, str]:
        """By partition, the sentence about the next record where the engine cannot store it."""
        lacked = [number for number, _ in self.uncopied(topic, positions)]
        return {number: told for number in lacked if (told := self.fault_at(Partition(topic, number)))}

    def fault_at(self, partition: Partition) -> str:
        """Why a copy stands before the record that was read last; empty: the engine can store it, or there is none."""
        _, reached, is_record = self._passed.get(partition, (0, 0, False))
        fault = self._faults.get(partition, "") if is_record else ""
        return unstorable(partition, reached, fault, partition.topic) if fault else ""

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
                index = _first_to_copy(fetched, places[each])
                is_record = index is not None
                reached = fetched.next_offset if index is None else fetched.offsets[index]
                self._faults[each] = "" if index is None else storing_fault(fetched, index)
                self._passed[each] = (begun, reached, is_record)
                if is_record or reached >= ends[each]:
                    del wanted[each]

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _first_to_copy(fetched: Records, place: EnginePlace) -> int | None:
    """The index of the first record that a copier does not leave out; None: there is none."""
    for index in range(len(fetched.offsets)):
        if not is_copy_of(*place, fetched.headers[index], fetched.keys[index], fetched.values[index]):
            return index
    return None
