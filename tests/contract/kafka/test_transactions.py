"""Transactions of both drivers: all or nothing, with a group's positions, and what readers see of them."""

import pytest

from common.contract import Code
from common.kafka.base import END, STABLE_END
from common.kafka.errors import ProducerFenced, TransactionAborted
from common.kafka.records import Partition
from tests.contract.kafka.exchange import NOW, Sent, outgoing, records_of, rows_of


def put(producer, topic, *values):
    sent = Sent()
    producer.produce(outgoing(topic, *[(0, NOW, b"k", value) for value in values]), sent)
    return sent


def test_a_committed_transaction_is_read_and_its_positions_are_the_groups(exchange, new_topic):
    topic, source = new_topic(), new_topic(2)
    producer, admin = exchange.producer(transactional_id=f"tx-{topic}"), exchange.admin()
    positions = {Partition(source, 0): 41, Partition(source, 1): 7}
    notes = {Partition(source, 0): "of é 1/2"}
    producer.begin()
    sent = put(producer, topic, b"a", b"b")
    producer.commit(positions, f"group-{topic}", notes)
    assert sent.results().all_stored
    assert [row[3] for row in exchange.read(topic, 2)] == [b"a", b"b"]
    assert admin.group_offsets(f"group-{topic}") == positions
    assert admin.committed(f"group-{topic}") == {each: (at, notes.get(each, "")) for each, at in positions.items()}


def test_an_aborted_transaction_is_skipped_and_the_position_passes_it(exchange, new_topic):
    topic = new_topic()
    producer = exchange.producer(transactional_id=f"tx-{topic}")
    producer.begin()
    assert put(producer, topic, b"no 1", b"no 2").results().all_stored
    producer.abort()
    producer.begin()
    put(producer, topic, b"yes")
    producer.commit({}, "")
    reader = exchange.reader({Partition(topic, 0): 0})
    assert [(row[0], row[3]) for row in records_of(reader, 1)] == [(3, b"yes")]
    # Offsets 2 and 4 are the control records of the two transactions.
    for _ in range(20):
        reader.poll(0.2)
        if reader.positions() == {Partition(topic, 0): 5}:
            break
    assert reader.positions() == {Partition(topic, 0): 5}
    everything = exchange.read(topic, 3, committed_only=False)
    assert [row[3] for row in everything] == [b"no 1", b"no 2", b"yes"]


def test_a_position_passes_control_records_without_records_behind_them(exchange, new_topic):
    topic = new_topic()
    producer = exchange.producer(transactional_id=f"tx-{topic}")
    producer.begin()
    assert put(producer, topic, b"no").results().all_stored
    producer.abort()
    reader, found = exchange.reader({Partition(topic, 0): 0}), []
    for _ in range(40):
        found += reader.poll(0.25)
        if found:
            break
    assert [(each.partition, each.next_offset, rows_of(each)) for each in found] == [(Partition(topic, 0), 2, [])]


def test_readers_stay_before_an_open_transaction(exchange, new_topic):
    topic = new_topic()
    partition = Partition(topic, 0)
    producer, admin = exchange.producer(transactional_id=f"tx-{topic}"), exchange.admin()
    assert exchange.send(topic, (0, NOW, b"k", b"before")).all_stored
    producer.begin()
    assert put(producer, topic, b"open").results().all_stored
    assert exchange.send(topic, (0, NOW, b"k", b"after")).all_stored
    reader = exchange.reader({partition: 0})
    assert [row[3] for row in records_of(reader, 1)] == [b"before"]
    assert not any(records.offsets for records in reader.poll(0.5))
    assert admin.offsets([partition], STABLE_END) == {partition: 1}
    assert admin.offsets([partition], END) == {partition: 3}
    producer.commit({}, "")
    assert [row[3] for row in records_of(reader, 2)] == [b"open", b"after"]
    assert admin.offsets([partition], STABLE_END) == {partition: 4}


def test_a_newer_producer_of_the_same_id_fences_the_older(exchange, new_topic):
    topic = new_topic()
    older = exchange.producer(transactional_id=f"tx-{topic}")
    older.begin()
    assert put(older, topic, b"older").results().all_stored
    newer = exchange.producer(transactional_id=f"tx-{topic}")
    newer.begin()
    put(newer, topic, b"newer")
    newer.commit({}, "")
    late = put(older, topic, b"late")
    with pytest.raises(ProducerFenced):
        older.commit({}, "")
    assert late.results().codes != [int(Code.OK)] and older.fatal_fault
    assert [row[3] for row in exchange.read(topic, 1)] == [b"newer"]


def test_a_transaction_with_a_refused_record_is_aborted_by_the_next_producer_of_its_id(exchange, new_topic):
    topic = new_topic(max_message_bytes=100_000)
    producer = exchange.producer(transactional_id=f"tx-{topic}")
    producer.begin()
    put(producer, topic, b"small")
    assert put(producer, topic, b"large" * 50_000).results().codes == [int(Code.TOO_LARGE)]
    with pytest.raises(TransactionAborted):
        producer.commit({}, "")
    producer.close(1.0)
    another = exchange.producer(transactional_id=f"tx-{topic}")
    another.begin()
    put(another, topic, b"again")
    another.commit({}, "")
    assert [row[3] for row in exchange.read(topic, 1)] == [b"again"]
