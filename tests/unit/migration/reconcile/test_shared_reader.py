"""Readers that passes of a comparison share."""

from contextlib import closing

import pytest

from common.kafka.base import ReaderOptions
from common.kafka.errors import ClusterUnreachable
from common.kafka.records import Partition
from migration.reconcile.kafka_side import fetches
from migration.reconcile.shared_reader import SharedReaders
from migration.reconcile.spans import ReadRange
from tests.services.memory_kafka import MemoryKafka, MemoryKafkaReader

PART = Partition("t", 0)


class Opened:
    """Opens readers of a topic in memory, and counts them."""

    def __init__(self) -> None:
        self.cluster, self.count, self.closed = MemoryKafka(t=1), 0, 0
        self.cluster.add("t", 0, *[b"%d" % number for number in range(10)])

    def __call__(self):
        self.count += 1
        made = MemoryKafkaReader(self.cluster, ReaderOptions(records_max=4))
        made.close = self.note_close
        return made

    def note_close(self) -> None:
        self.closed += 1


def values(readers, first, end):
    with closing(readers.open()) as reader:
        fetched = list(fetches(reader, {PART: ReadRange(first, end)}))
        return [value for each in fetched for value in each.values]


def test_passes_one_after_another_read_their_own_ranges_with_one_reader():
    opened = Opened()
    with closing(SharedReaders(opened)) as readers:
        assert values(readers, 0, 8) == [b"%d" % number for number in range(8)]
        assert values(readers, 2, 6) == [b"2", b"3", b"4", b"5"]
        assert (opened.count, opened.closed) == (1, 0)
    assert opened.closed == 1


def test_passes_at_the_same_time_have_a_reader_each():
    opened = Opened()
    with closing(SharedReaders(opened)) as readers:
        with closing(readers.open()), closing(readers.open()):
            assert opened.count == 2
        assert opened.closed == 0
    assert opened.closed == 2


def test_a_reader_that_has_failed_is_closed_and_not_given_again():
    opened = Opened()
    with closing(SharedReaders(opened)) as readers:
        opened.cluster.fault = ClusterUnreachable("away")
        with pytest.raises(ClusterUnreachable):
            values(readers, 0, 8)
        assert opened.closed == 1
        opened.cluster.fault = None
        assert len(values(readers, 0, 8)) == 8 and opened.count == 2
