"""Both drivers' producers against a real broker: what arrives, and which result each record gets."""

import importlib.util
import threading
import time

import pytest

from common.contract import Code, Message, encode_struct
from common.kafka.drivers import DRIVERS, installed, open_driver
from common.kafka.errors import KafkaRefusal
from common.kafka.native import NATIVE
from common.kafka.records import NO_OFFSET, NO_TIMESTAMP, OutgoingRecords, Partition
from common.keyhash import queue_of
from engine.link.produce import ProducedMessage, encode_produce
from kafka_bridge.native import OutgoingBatch
from tests.contract.kafka.exchange import NOW, Sent, outgoing, records_of
from tests.services import require
from tests.waiting import until

OK, INVALID, TOO_LARGE = int(Code.OK), int(Code.INVALID), int(Code.TOO_LARGE)
OVERLOADED, UNAVAILABLE = int(Code.OVERLOADED), int(Code.UNAVAILABLE)


BY_THE_PACKAGE = "confluent-kafka by its package"
"""Its own producer, which is used where the library in the package cannot be called."""


@pytest.fixture(params=(*DRIVERS, BY_THE_PACKAGE))
def driver(request, monkeypatch):
    name = "confluent-kafka" if request.param == BY_THE_PACKAGE else request.param
    require(name in installed(), f"pip install {name}")
    if request.param == BY_THE_PACKAGE:
        monkeypatch.setattr("common.kafka.librdkafka.driver.LibraryProducer", None)
    return open_driver(name)


def test_the_library_in_the_package_is_called_where_there_are_native_modules():
    pytest.importorskip("confluent_kafka")
    from common.kafka.librdkafka.native import LibraryProducer

    assert (LibraryProducer is not None) == NATIVE


def test_a_record_arrives_as_it_was_sent(exchange, new_topic):
    topic = new_topic()
    headers = [("twice", b"1"), ("empty", b""), ("twice", b"2"), ("naïve", b"\xff\x00")]
    rows = [
        (0, NOW, b"k", b"v", headers),
        (0, NOW + 1, None, b"no key", []),
        (0, NOW + 2, b"", b"the empty key", []),
        (0, NOW + 3, b"k", None, []),
        (0, NOW + 4, b"k", b"", []),
        (0, NOW + 5, None, None, [("only", b"a header")]),
        (0, NO_TIMESTAMP, b"k", b"no time", []),
        (0, 1, b"\xff\xfe", b"v" * 100_000, []),
    ]
    results = exchange.send(topic, *rows)
    assert results.all_stored and results.codes == [OK] * 8 and results.offsets == [*range(8)]
    assert exchange.read(topic, 8) == [(offset, *row[1:]) for offset, row in enumerate(rows)]


def test_records_of_a_request_arrive_as_their_columns_say(exchange, new_topic):
    topic = new_topic()
    ids = [bytes(range(number, number + 16)) if number % 2 else None for number in range(6)]
    sent = [
        Message(topic=topic, body=b"v", key=b"k", tag="t", id="own", properties={"a": "1", "б": ""}),
        Message(topic=topic, body=b"no key", properties={}),
        Message(topic=topic, body=b"", key=b""),
        Message(topic=topic, key=b"no body"),
        Message(topic=topic, body=b"x" * 100_000, key=b"k", tag="by reference"),
        Message(topic=topic, body=b"many", properties={f"name-{number}": "x" * number for number in range(40)}),
    ]
    messages = [ProducedMessage(0, 0, *each) for each in zip(ids, map(encode_struct, sent), strict=True)]
    batch = OutgoingBatch(encode_produce("main", [topic], 3000, messages))
    records, results = batch.map(lambda name: 1, NOW, 0), Sent()
    _, _, times, keys, values, headers = records
    rows = [*zip(range(6), times, keys, values, map(list, headers), strict=True)]
    exchange.producer().produce(records, results)
    assert results.results().all_stored
    assert exchange.read(topic, 6) == rows
    assert [row[2:4] for row in rows[1:4]] == [(None, b"no key"), (b"", b""), (b"no body", b"")]


def test_a_null_header_is_written_or_refused_by_name(exchange, new_topic):
    topic = new_topic()
    producer = exchange.producer()
    results = exchange.send(topic, (0, NOW, b"k", b"v", [("n", None)]), (0, NOW, b"k", b"w", []), producer=producer)
    if producer.writes_null_headers:
        assert results.all_stored
        assert exchange.read(topic, 2)[0][4] == [("n", None)]
    else:
        assert results.codes == [INVALID, OK] and "null" in results.sentences[0]
        assert [row[3] for row in exchange.read(topic, 1)] == [b"w"]


def test_a_timestamp_of_zero_is_kept_or_refused_but_never_changed(exchange, new_topic):
    topic = new_topic()
    results = exchange.send(topic, (0, 0, b"k", b"v"), (0, 5, b"k", b"w"))
    if exchange.driver.name == "kafka-python":
        assert results.all_stored and [row[1] for row in exchange.read(topic, 2)] == [0, 5]
    else:
        assert results.codes == [INVALID, OK] and "timestamp of 0" in results.sentences[0]
        assert [row[1] for row in exchange.read(topic, 1)] == [5]


def test_results_come_once_and_in_the_order_of_the_records_over_partitions_and_topics(exchange, new_topic):
    topics = [new_topic(3), new_topic(1)]
    rows = [(topics[number % 2], number // 2 % 3 if number % 2 == 0 else 0) for number in range(600)]
    columns = [[NOW] * 600, [None] * 600, [b"%d" % each for each in range(600)], [[]] * 600]
    sent = Sent()
    exchange.producer().produce(OutgoingRecords(*map(list, zip(*rows, strict=True)), *columns), sent)
    results = sent.results()
    assert results.all_stored and len(sent.calls) == 1
    nexts = dict.fromkeys(rows, 0)
    for row, offset in zip(rows, results.offsets, strict=True):
        assert offset == nexts[row]
        nexts[row] += 1
    for (topic, partition), count in nexts.items():
        wanted = [b"%d" % index for index, row in enumerate(rows) if row == (topic, partition)]
        assert [row[3] for row in exchange.read(topic, count, partition)] == wanted


def test_a_batch_without_records_has_results_at_once(exchange):
    sent = Sent()
    exchange.producer().produce(outgoing("any"), sent)
    assert sent.calls == [([], [], {})]


def test_a_key_has_the_partition_that_javas_producer_gives_it(exchange, new_topic, brokers):
    topic = new_topic(7)
    keys = [f"key-{number}" for number in range(50)] + ["ключ", "a", "日本"]
    lines = "".join(f"{key}\t{key}\n" for key in keys).encode()
    program, broker = "org.apache.kafka.tools.ConsoleProducer", ("--bootstrap-server", brokers.bootstrap)
    brokers.tool(program, *broker, "--topic", topic, "--property", "parse.key=true", stdin=lines)
    reader = exchange.reader({Partition(topic, number): 0 for number in range(7)})
    found = {}
    while len(found) < len(keys):
        for records in reader.poll(0.5):
            found.update(dict.fromkeys(records.keys, records.partition.number))
    assert found == {key.encode(): queue_of(key.encode(), 7) for key in keys}


def test_a_record_that_its_topic_does_not_take_is_too_large_and_its_neighbours_are_stored(exchange, new_topic):
    topic = new_topic(max_message_bytes=100_000)
    results = exchange.send(topic, (0, NOW, b"k", b"a"), (0, NOW, b"k", b"b" * 150_000), (0, NOW, b"k", b"c"))
    assert results.codes == [OK, TOO_LARGE, OK]
    assert results.offsets[1] == NO_OFFSET and [*results.sentences] == [1]
    assert [row[3] for row in exchange.read(topic, 2)] == [b"a", b"c"]


def test_a_refused_record_does_no_harm_to_what_is_sent_later_or_at_the_same_time(exchange, new_topic):
    small, other = new_topic(max_message_bytes=100_000), new_topic(4)
    producer = exchange.producer()
    for size in (150_000, 10, 200_000, 150_000, 20):
        beside = Sent()
        producer.produce(outgoing(other, *[(number % 4,) for number in range(40)]), beside)
        results = exchange.send(small, (0, NOW, b"k", b"v" * size), producer=producer)
        assert results.codes == [OK if size < 100_000 else TOO_LARGE]
        assert beside.results().all_stored
    assert [len(row[3]) for row in exchange.read(small, 2)] == [10, 20]
    assert producer.fatal_fault == ""


def test_an_error_of_whoever_gets_the_results_does_no_harm_to_what_is_sent_later(exchange, new_topic):
    topic, producer = new_topic(), exchange.producer()
    told = threading.Event()

    def fail(results):
        told.set()
        raise ValueError("an error of the producer's owner")

    producer.produce(outgoing(topic, (0, NOW, b"k", b"1")), fail)
    assert told.wait(30)
    assert exchange.send(topic, (0, NOW, b"k", b"2"), producer=producer).all_stored
    assert producer.fatal_fault == "" and producer.flush(5)


def test_a_failure_of_the_library_itself_ends_the_producer_and_is_told(exchange, new_topic):
    if exchange.driver.name == "kafka-python":
        pytest.skip("kafka-python has no thread of ours that serves it")
    topic, producer = new_topic(), exchange.producer()
    library = producer._client

    class Failing:
        def __getattr__(self, name):
            return getattr(library, name)

        def poll(self, timeout_s):
            producer._client = library
            raise SystemError("an exception that is none")

    producer._client = Failing()
    until(lambda: producer.fatal_fault, "the fault", 10.0)
    assert "the library failed: an exception that is none" in producer.fatal_fault
    assert exchange.send(topic, (0, NOW, b"k", b"v"), producer=producer).all_stored, "its thread goes on"


def test_the_neighbours_of_an_invalid_record_are_not_stored_and_can_be_sent_again(exchange, new_topic):
    topic = new_topic(cleanup_policy="compact")
    producer = exchange.producer(linger_ms=200)
    rows = [(0, NOW, b"k", b"1"), (0, NOW, None, b"2"), (0, NOW, b"k", b"3")]
    results = exchange.send(topic, *rows, producer=producer)
    if exchange.driver.name == "kafka-python":
        assert results.codes == [UNAVAILABLE, INVALID, UNAVAILABLE]
    else:  # which one it is does not come through
        assert results.codes == [INVALID] * 3 and "one that was sent with it" in results.sentences[0]
    assert exchange.send(topic, rows[0], rows[2], producer=producer).all_stored
    assert [row[3] for row in exchange.read(topic, 2)] == [b"1", b"3"]


@pytest.mark.parametrize(
    ("configs", "row", "name"),
    [
        ({"cleanup_policy": "compact"}, (0, NOW, None, b"v"), "INVALID_RECORD"),
        ({"message_timestamp_before_max_ms": 1000}, (0, NOW, b"k", b"v"), "INVALID_TIMESTAMP"),
    ],
)
def test_a_record_that_kafka_calls_invalid_is_invalid(exchange, new_topic, configs, row, name):
    results = exchange.send(new_topic(**configs), row)
    assert results.codes == [INVALID] and name in results.sentences[0]


def test_a_topic_that_does_not_exist_is_unavailable_at_once(exchange, new_topic):
    producer, began = exchange.producer(), time.monotonic()
    results = exchange.send("no-such-topic", (0,), (0,), producer=producer)
    assert results.codes == [UNAVAILABLE] * 2 and "no-such-topic" in results.sentences[1]
    assert time.monotonic() - began < 4.0
    with pytest.raises(KafkaRefusal) as refusal:
        producer.partitions("no-such-topic")
    assert refusal.value.number == 3


def test_a_partition_that_does_not_exist_is_unavailable(exchange, new_topic):
    results = exchange.send(new_topic(2), (5, NOW, b"k", b"v"), (1, NOW, b"k", b"v"), producer=exchange.producer())
    assert results.codes == [UNAVAILABLE, OK]


def test_the_number_of_partitions_is_known(exchange, new_topic):
    producer = exchange.producer()
    assert [producer.partitions(new_topic(count)) for count in (1, 5)] == [1, 5]


def test_a_producer_is_idempotent(exchange, new_topic, brokers):
    require(importlib.util.find_spec("kafka"), "pip install kafka-python")
    from kafka import KafkaAdminClient, TopicPartition

    topic = new_topic()
    exchange.send(topic, (0,), (0,))
    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap)
    (producers,) = admin.describe_producers([TopicPartition(topic, 0)]).values()
    admin.close()
    assert [each.last_sequence for each in producers.active_producers] == [1]


def test_more_than_may_wait_is_overloaded(exchange, new_topic):
    topic = new_topic()
    producer = exchange.producer(pending_bytes_max=10, linger_ms=3_000)
    producer.partitions(topic)
    first, second = Sent(), Sent()
    producer.produce(outgoing(topic, (0, NOW, b"k", b"more than ten bytes")), first)
    producer.produce(outgoing(topic, (0, NOW, b"k", b"v")), second)
    assert second.results().codes == [OVERLOADED] and not first.is_done
    assert producer.flush(20.0)
    assert first.results().all_stored
    assert exchange.send(topic, (0, NOW, b"k", b"v"), producer=producer).all_stored


def test_a_flush_returns_when_all_results_have_come(exchange, new_topic):
    topic = new_topic()
    producer = exchange.producer(linger_ms=5_000)
    batches = [Sent() for _ in range(20)]
    for each in batches:
        producer.produce(outgoing(topic, *[(0,)] * 50), each)
    assert producer.flush(20.0)
    assert all(each.is_done and each.calls[0].all_stored for each in batches)


def test_a_producer_may_be_closed_twice(exchange):
    producer = exchange.producer()
    producer.close(1.0)
    producer.close(1.0)


def test_records_of_one_partition_keep_their_order_over_batches(exchange, new_topic):
    topic = new_topic()
    producer = exchange.producer()
    for number in range(40):
        producer.produce(outgoing(topic, *[(0, NOW, b"k", b"%d" % (number * 50 + each)) for each in range(50)]), Sent())
    assert producer.flush(20.0)
    reader = exchange.reader({Partition(topic, 0): 0})
    assert [int(row[3]) for row in records_of(reader, 2000)] == [*range(2000)]
