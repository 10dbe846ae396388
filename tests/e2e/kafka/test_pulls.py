"""Pulls of topics whose home is Kafka, end to end: `penstock up`, Thrift clients, and a real broker."""

from contextlib import closing

import pytest

from common.contract import Code, Message
from common.kafka.base import ProducerOptions
from common.kafka.drivers import installed, open_driver
from common.kafka.records import OutgoingRecords
from kafka_bridge.copy_in.foreign_headers import decode_headers
from kafka_bridge.copy_in.messages import HEADERS_PROPERTY, KEY_PROPERTY, NULL_PROPERTY, TIME_PROPERTY
from tests.e2e.kafka.home import Home, Puller
from tests.services import require

TOPICS = ["orders", "foreign", "work"]
TIME_MS = 1_700_000_000_123


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    require(installed(), "a Kafka client")
    made = Home(tmp_path_factory.mktemp("pulls"), "auto", TOPICS)
    for name in TOPICS:
        made.create(name)
    yield made.start()
    made.close()


def test_what_is_sent_to_kafka_is_pulled_once_in_order_and_as_it_was(home):
    sent = [
        Message(topic="orders", key=f"k{number % 7}", body=b"%d" % number, tag="t", properties={"n": str(number)})
        for number in range(300)
    ]
    with closing(home.sender()) as sender, closing(Puller(home, "readers")) as puller:
        results = [each for at in range(0, 300, 50) for each in sender.send(*sent[at : at + 50])]
        assert {each.code for each in results} == {Code.OK}
        found = puller.take("orders", 300)
    assert sorted(each.id for each in found) == sorted(each.id for each in results), "each once, under its id"
    by_id = {each.id: each for each in found}
    for message, result in zip(sent, results, strict=True):
        delivery = by_id[result.id]
        got = delivery.message
        assert (got.topic, got.key, got.body, got.tag) == ("orders", message.key, message.body, "t")
        assert got.properties["n"] == message.properties["n"] and delivery.queue == result.queue
    for key in {each.key for each in sent}:
        bodies = [int(each.message.body) for each in found if each.message.key == key]
        assert bodies == sorted(bodies)


def produce(home, topic, rows, transaction="", aborts=False):
    """Write (partition, key, value, headers) by a plain producer of Kafka."""
    options = ProducerOptions(transactional_id=transaction)
    codes = []
    producer = open_driver().producer(home.connection, options)
    producer.partitions(topic)
    if transaction:
        producer.begin()
    partitions, keys, values, headers = zip(*rows, strict=True)
    records = OutgoingRecords([topic] * len(rows), partitions, [TIME_MS] * len(rows), keys, values, headers)
    producer.produce(records, lambda results: codes.extend(results.codes))
    assert producer.flush(30)
    if transaction:
        producer.abort() if aborts else producer.commit({}, "")
    producer.close(10)
    assert set(codes) == {Code.OK}


def test_records_of_any_producer_are_pulled_as_the_table_says_and_aborted_ones_are_not(home):
    twice = [("a", b"1"), ("a", b"2"), ("b", b"3")]
    produce(home, "foreign", [(0, b"k", b"first", ())])
    produce(home, "foreign", [(0, b"k", b"aborted", ()), (1, None, b"aborted", ())], "aborting", aborts=True)
    produce(home, "foreign", [(0, b"k", None, ()), (0, b"\xff", b"bytes", twice)], "committing")
    produce(home, "foreign", [(0, None, b"last", ())])
    with closing(Puller(home, "readers")) as puller:
        found = puller.take("foreign", 4)
    assert [each.message.body for each in found] == [b"first", None, b"bytes", b"last"]
    first, tombstone, odd, last = (each.message for each in found)
    assert first.key == "k" and first.properties == {TIME_PROPERTY: str(TIME_MS)}
    assert tombstone.properties[NULL_PROPERTY] == "value"
    assert odd.key == "ff" and odd.properties[KEY_PROPERTY] == "/w==" and odd.properties["b"] == "3"
    assert decode_headers(odd.properties[HEADERS_PROPERTY].encode()) == twice[:2]
    assert last.key is None
    assert len({each.id for each in found}) == 4 and [each.offset for each in found] == [0, 1, 2, 3]
