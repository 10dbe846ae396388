"""Pulls of topics whose home is Kafka, end to end: `penstock up`, Thrift clients, and a real broker."""

from contextlib import closing

import pytest

from common.contract import Code, Message, Verdict
from common.kafka.base import ProducerOptions
from common.kafka.drivers import DRIVERS, installed, open_driver
from common.kafka.records import OutgoingRecords
from kafka_bridge.copy_in.foreign_headers import decode_headers
from kafka_bridge.copy_in.messages import HEADERS_PROPERTY, KEY_PROPERTY, NULL_PROPERTY, TIME_PROPERTY
from tests.e2e.kafka.home import PARTITIONS, Home, Puller
from tests.services import require
from tests.waiting import until

TOPICS = ["orders", "foreign", "work", "late", "grows", "again"]
TIME_MS = 1_700_000_000_123


@pytest.fixture(scope="module", params=DRIVERS)
def home(request, tmp_path_factory):
    require(request.param in installed(), f"pip install {request.param}")
    made = Home(tmp_path_factory.mktemp("pulls"), request.param, TOPICS, starts_before=True).start()
    made.add_cluster()
    for name in ("orders", "foreign", "work", "grows", "again"):
        made.create(name)
    yield made
    made.close()


def test_up_starts_a_bridge_once_the_first_cluster_is_added(home):
    until(lambda: "kafka_bridge" in home.penstock.refresh()["pids"], "the bridge", 30.0)
    processes = {each["name"]: each for each in home.penstock.run("status")["processes"]}
    assert processes["kafka_bridge"]["ready"] == "yes"
    assert home.penstock.facts.get("later") is None


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
    produce(home, "foreign", [(0, None, b"aborted", ()), (1, None, b"aborted", ())], "aborting", aborts=True)
    shown = home.penstock.run("topic", "show", "foreign")
    assert (shown["copy"], shown["copy_behind"]) == ("up to date", 0), "aborted records are nothing to copy"


def test_a_message_that_is_rejected_is_a_dead_letter_of_the_engine(home):
    with closing(home.sender()) as sender, closing(Puller(home, "workers")) as puller:
        assert [each.code for each in sender.send(Message(topic="work", body=b"job", key="k"))] == [Code.OK]
        puller.pull("work", wait_ms=20_000)
        puller.verdict(Verdict.RETRY, delay_ms=1)
        again = puller.pull("work", wait_ms=20_000)
        assert [(each.message.body, each.attempt) for each in again] == [(b"job", 2)]
        puller.verdict(Verdict.REJECT)
        puller.pull("work", wait_ms=0)
        (dead,) = puller.take("_dlq.workers", 1)
    assert dead.message.body == b"job"


def test_a_topic_can_begin_with_what_is_sent_after_its_creation(home):
    produce(home, "late", [(0, None, b"before", ()), (1, None, b"before", ())])
    home.create("late", "--copy-from", "latest")
    assert home.penstock.run("topic", "show", "late")["copy_from"] == "1,1,0,0"
    produce(home, "late", [(0, None, b"after", ())])
    with closing(Puller(home, "readers")) as puller:
        assert [each.message.body for each in puller.take("late", 1)] == [b"after"]


def tool(home, *arguments):
    home.brokers.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", home.brokers.bootstrap, *arguments)


def test_queues_follow_partitions_that_are_added_in_kafka(home):
    tool(home, "--alter", "--topic", "grows", "--partitions", str(PARTITIONS + 1))
    produce(home, "grows", [(PARTITIONS, None, b"in the new one", ())])
    with closing(Puller(home, "readers")) as puller:
        (found,) = puller.take("grows", 1)
    assert (found.queue, found.message.body) == (PARTITIONS, b"in the new one")
    assert home.penstock.run("topic", "show", "grows")["queues"] == PARTITIONS + 1


def test_a_topic_that_was_made_again_in_kafka_goes_on_after_an_operators_word(home):
    produce(home, "again", [(0, None, b"old", ()), (0, None, b"old", ())])
    with closing(Puller(home, "readers")) as puller:
        puller.take("again", 2)
        tool(home, "--delete", "--topic", "again")
        tool(home, "--create", "--topic", "again", "--partitions", str(PARTITIONS), "--replication-factor", "1")
        produce(home, "again", [(0, None, b"new", ())])
        until(lambda: "made again" in home.penstock.run("topic", "show", "again")["copy"], "the sentence", 30.0)
        bridge = next(each for each in home.penstock.run("status")["processes"] if each["name"] == "kafka_bridge")
        assert bridge["ready"] == "yes" and "stands still since" in bridge["notes"]["copy of again"]
        rows = home.penstock.run("kafka", "accept", "again", "--reason", "the topic was cleaned up")
        assert [(each["partition"], each["start"], each["source"]) for each in rows] == [
            (number, 0, 2) for number in range(PARTITIONS)
        ]
        assert [each.message.body for each in puller.take("again", 1)] == [b"new"]
    nothing = home.penstock.call("kafka", "accept", "again", "--reason", "again")
    assert nothing.returncode == 4 and b"its copy is not stopped" in nothing.stderr
    assert home.penstock.run("topic", "show", "again")["copy"] == "up to date"
