"""Both drivers' readers of partitions against a real broker."""

import time

import pytest

from common.kafka.errors import KafkaRefusal, PositionOutOfRange
from common.kafka.records import Partition
from tests.contract.kafka.exchange import NOW, outgoing, records_of, rows_of
from tests.waiting import until


def fill(exchange, topic, count, partition=0):
    assert exchange.send(topic, *[(partition, NOW, b"k", b"%d" % each) for each in range(count)]).all_stored


def test_reading_begins_at_the_position_that_was_given(exchange, new_topic):
    topic = new_topic()
    fill(exchange, topic, 10)
    reader = exchange.reader({Partition(topic, 0): 7})
    assert [row[0] for row in records_of(reader, 3)] == [7, 8, 9]
    assert reader.positions() == {Partition(topic, 0): 10}


def test_columns_are_equally_long_and_name_their_partition(exchange, new_topic):
    topic = new_topic(2)
    fill(exchange, topic, 5)
    fill(exchange, topic, 3, partition=1)
    reader = exchange.reader({Partition(topic, 0): 0, Partition(topic, 1): 1})
    nexts, rows = {}, []
    while len(rows) < 7:
        for records in reader.poll(0.5):
            assert len({len(column) for column in records[2:]}) == 1
            assert records.next_offset >= max(records.offsets, default=0)
            nexts[records.partition] = records.next_offset
            rows += [(records.partition.number, row[0], row[3]) for row in rows_of(records)]
    wanted = [(0, each, b"%d" % each) for each in range(5)] + [(1, 1, b"1"), (1, 2, b"2")]
    assert sorted(rows) == wanted
    assert nexts == reader.positions() == {Partition(topic, 0): 5, Partition(topic, 1): 3}


def test_a_poll_returns_at_most_so_many_records_and_the_next_one_goes_on(exchange, new_topic):
    topic = new_topic()
    fill(exchange, topic, 25)
    reader = exchange.reader({Partition(topic, 0): 0}, records_max=10)
    offsets = []
    while len(offsets) < 25:
        found = [offset for records in reader.poll(0.5) for offset in records.offsets]
        assert len(found) <= 10
        offsets += found
    assert offsets == [*range(25)]


def test_a_poll_returns_when_something_arrives(exchange, new_topic):
    topic = new_topic()
    producer = exchange.producer(linger_ms=0)
    reader = exchange.reader({Partition(topic, 0): 0})
    assert reader.poll(0.3) == []
    producer.produce(outgoing(topic, (0,)), lambda results: None)
    began = time.monotonic()
    assert [row[0] for records in reader.poll(25.0) for row in rows_of(records)] == [0]
    assert time.monotonic() - began < 12.0


def test_a_paused_partition_gives_nothing_and_goes_on_where_it_was(exchange, new_topic):
    topic = new_topic(2)
    quiet, other = Partition(topic, 0), Partition(topic, 1)
    fill(exchange, topic, 4)
    reader = exchange.reader({quiet: 0, other: 0})
    assert len(records_of(reader, 4)) == 4
    reader.pause([quiet])
    fill(exchange, topic, 3)
    fill(exchange, topic, 2, partition=1)
    seen = []
    while len(seen) < 2:
        seen += [records.partition for records in reader.poll(0.5) for _ in records.offsets]
    assert set(seen) == {other}
    assert not any(records.offsets for records in reader.poll(0.5))
    reader.resume([quiet])
    assert [row[0] for row in records_of(reader, 3)] == [4, 5, 6]


def test_partitions_are_added_beside_others_and_removed_without_them(exchange, new_topic):
    topic, later = new_topic(2), new_topic()
    first, second, third = Partition(topic, 0), Partition(topic, 1), Partition(later, 0)
    fill(exchange, topic, 6)
    fill(exchange, topic, 6, partition=1)
    fill(exchange, later, 4)
    reader = exchange.reader(records_max=3)
    reader.add({first: 1})
    assert [row[0] for row in records_of(reader, 3)] == [1, 2, 3]
    reader.add({second: 4})
    assert sorted((row[0], row[3]) for row in records_of(reader, 4)) == [(4, b"4"), (4, b"4"), (5, b"5"), (5, b"5")]
    reader.add({third: 2, first: 5})
    found = [(row[0], row[3]) for row in records_of(reader, 3)]
    assert sorted(found) == [(2, b"2"), (3, b"3"), (5, b"5")]
    assert reader.positions() == {first: 6, second: 6, third: 4}
    reader.remove([first, third, Partition(later, 7)])
    assert reader.positions() == {second: 6}
    fill(exchange, later, 1)
    fill(exchange, topic, 1)
    fill(exchange, topic, 1, partition=1)
    assert [row[0] for row in records_of(reader, 1)] == [6]
    assert reader.poll(1.0) == [], "nothing of partitions that were removed"


def test_what_was_fetched_before_a_partition_was_added_again_is_not_returned(exchange, new_topic):
    topic = new_topic(2)
    busy, quiet = Partition(topic, 0), Partition(topic, 1)
    fill(exchange, topic, 50)
    reader = exchange.reader(records_max=5)
    reader.add({busy: 0, quiet: 0})
    assert [row[0] for row in records_of(reader, 5)] == [*range(5)]
    reader.add({busy: 40})
    assert [row[0] for row in records_of(reader, 10)] == [*range(40, 50)]
    reader.remove([busy])
    reader.add({busy: 48})
    assert [row[0] for row in records_of(reader, 2)] == [48, 49]


def test_a_position_out_of_range_leaves_the_other_partitions_of_a_reader_as_they_are(exchange, new_topic):
    topic = new_topic(2)
    lost, other = Partition(topic, 0), Partition(topic, 1)
    fill(exchange, topic, 3)
    fill(exchange, topic, 3, partition=1)
    reader = exchange.reader()
    reader.add({lost: 90, other: 0})
    found, faults = [], []
    until(lambda: polled(reader, found, faults) and len(found) >= 3 and faults, "both outcomes", 30.0)
    assert [row[0] for row in found] == [0, 1, 2] and {each.partition for each in faults} == {lost}
    reader.add({lost: 2})
    assert [row[0] for row in records_of(reader, 1)] == [2]
    fill(exchange, topic, 1, partition=1)
    assert [row[0] for row in records_of(reader, 1)] == [3]


def polled(reader, found, faults) -> bool:
    """Take what one poll gives, records or a fault."""
    try:
        for records in reader.poll(0.5):
            found += rows_of(records)
    except PositionOutOfRange as fault:
        faults.append(fault)
    return True


def test_partitions_may_be_assigned_again(exchange, new_topic):
    first, second = new_topic(), new_topic()
    fill(exchange, first, 3)
    fill(exchange, second, 2)
    reader = exchange.reader({Partition(first, 0): 0})
    assert len(records_of(reader, 3)) == 3
    reader.assign({Partition(second, 0): 0, Partition(first, 0): 1})
    assert sorted(row[3] for row in records_of(reader, 4)) == [b"0", b"1", b"1", b"2"]
    assert reader.positions() == {Partition(first, 0): 3, Partition(second, 0): 2}


@pytest.mark.parametrize("offset", [500, 10_000_000_000])
def test_a_position_that_does_not_exist_is_out_of_range_and_nothing_is_skipped(exchange, new_topic, offset):
    topic = new_topic()
    fill(exchange, topic, 3)
    reader = exchange.reader({Partition(topic, 0): offset})
    with pytest.raises(PositionOutOfRange) as fault:
        for _ in range(60):
            assert reader.poll(0.5) == []
    assert fault.value.partition == Partition(topic, 0) and str(offset) in str(fault.value)
    reader.assign({Partition(topic, 0): 2})
    assert [row[0] for row in records_of(reader, 1)] == [2]


def test_a_topic_that_does_not_exist_cannot_be_assigned(exchange):
    with pytest.raises(KafkaRefusal) as refusal:
        exchange.reader({Partition("no-such-topic", 0): 0})
    assert refusal.value.number == 3 and "no-such-topic" in str(refusal.value)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(exchange, new_topic, codec):
    """The broker compresses, as a Java producer may have done."""
    topic = new_topic(compression_type=codec)
    fill(exchange, topic, 50)
    assert [row[3] for row in exchange.read(topic, 30, at=20)] == [b"%d" % each for each in range(20, 50)]
