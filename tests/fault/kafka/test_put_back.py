"""One side's data are put back to an older copy, and it gets other messages at the offsets of the lost ones: no command of a
plan says that all is copied, and after an operator's word all of it is. And Kafka is only restarted: the copies go on by
themselves. Real processes and a real broker.
"""

import json
import shutil
import time
import urllib.error
import urllib.request
from contextlib import closing

import pytest

from common.kafka.base import ProducerOptions
from common.kafka.drivers import open_driver
from common.kafka.records import OutgoingRecords
from kafka_bridge.copy_out.positions import position_group
from tests.fault.kafka.every_state import Restorable
from tests.waiting import until

TOPIC = "shop"
EARLIER, LOST, OTHERS, LATER = 20, 30, 45, 5
COPIED_S_MAX = 60.0
LOST_IN_KAFKA = f"partition 0 offset {EARLIER + LOST - 1}: it has not the record that was copied from there"


class PutBack(Restorable):
    """With a writer beside the proxies."""

    def write(self, prefix, count) -> list[str]:
        """Records of a writer beside the proxies."""
        names = [f"{prefix}{number}" for number in range(count)]
        values = [each.encode() for each in names]
        with closing(_Closing(open_driver().producer(self.connection, ProducerOptions()))) as opened:
            codes: list[int] = []
            opened.producer.partitions(TOPIC)
            times = [int(time.time() * 1000)] * count
            records = OutgoingRecords([TOPIC] * count, [0] * count, times, values, values, [()] * count)
            opened.producer.produce(records, lambda results: codes.extend(results.codes))
            assert opened.producer.flush(30) and set(codes) == {0}
        return names

    def put_back_partition(self, data) -> None:
        """Of the topic alone, as where a broker leads it that has less: positions are those of before."""
        name = f"{TOPIC}-0"
        shutil.rmtree(data / name)
        shutil.copytree(self.folder / f"kept-{data.name}" / name, data / name)

    def set_position(self, at) -> None:
        """Of the copy back, as an operator does."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        position = ConsumerGroupTopicPartitions(position_group(TOPIC), [TopicPartition(TOPIC, 0, at)])
        for done in self.hand.alter_consumer_group_offsets([position]).values():
            done.result(30)

    def notes(self) -> str:
        """The notes of the bridge's /readyz, as text."""
        port = self.penstock.refresh()["ops"]["kafka_bridge"]
        try:
            page = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10))
        except urllib.error.HTTPError as answer:
            page = json.load(answer)
        return str({**page["faults"], **page["notes"]})


class _Closing:
    def __init__(self, producer) -> None:
        self.producer = producer

    def close(self) -> None:
        self.producer.close(10)


@pytest.fixture
def side(tmp_path):
    made = PutBack(tmp_path)
    yield made
    made.close()


def test_a_kafka_that_was_put_back_while_the_bridge_was_stopped_stops_the_cut_until_an_operators_word(side):
    side.create(TOPIC)
    side.write("earlier", EARLIER)
    side.write_plan(TOPIC)
    side.migrate("verify", TOPIC)
    with side.kafka_away() as data:
        side.keep(data)
    side.write("lost", LOST)
    until(lambda: side.row(TOPIC)["copied"] == EARLIER + LOST, "the copy", COPIED_S_MAX)
    with side.bridge_stopped():
        with side.kafka_away() as data:
            side.put_back(data)
        side.write("other", OTHERS)
        assert LOST_IN_KAFKA in side.migrate("cut", TOPIC, code=4)
        assert side.row(TOPIC)["behind"] == OTHERS - LOST, "its ends do not tell"
    until(lambda: LOST_IN_KAFKA in side.notes(), "the standstill of the bridge", COPIED_S_MAX)
    assert LOST_IN_KAFKA in side.migrate("cut", TOPIC, "--accept", "source", code=4)
    assert LOST_IN_KAFKA in side.penstock.run("topic", "show", TOPIC)["copy"]
    assert any(LOST_IN_KAFKA in each for each in side.row(TOPIC)["notes"])
    compared = side.migrate("verify", TOPIC, "--all", code=1)
    assert f"{LOST} ids differ" in compared and "the plan is not verified" in compared
    side.penstock.run("kafka", "accept", TOPIC, "--partition", "0", "--start", str(EARLIER), "--reason", "put back")
    until(lambda: side.row(TOPIC)["copied"] == EARLIER + OTHERS, "the copy of the others", COPIED_S_MAX)
    since_ms = int(time.time() * 1000) + 1  # the others have an earlier time
    until(lambda: time.time() * 1000 >= since_ms, "a later time")
    assert "nothing was compared" in side.migrate("verify", TOPIC, "--from", f"@{since_ms}", code=4)
    side.write("later", LATER)
    side.migrate("verify", TOPIC, "--from", f"@{since_ms}")
    side.way(TOPIC, "cut")
    assert side.row(TOPIC)["engine_end"] == EARLIER + LOST + OTHERS + LATER


def test_an_engine_that_was_put_back_stops_the_rollback_until_an_operators_word(side):
    side.plan(TOPIC)
    side.way(TOPIC, "verify", "cut", "soak")
    sent = side.send(TOPIC, "earlier", EARLIER)
    until(lambda: side.kafka_ids(TOPIC) == sorted(sent), "the copy back", COPIED_S_MAX)
    with side.penstock_away() as data:
        side.keep(data)
    sent += side.send(TOPIC, "lost", LOST)
    until(lambda: side.kafka_ids(TOPIC) == sorted(sent), "the copy back", COPIED_S_MAX)
    with side.penstock_away() as data:
        side.put_back(data)
    side.penstock.run("broker-group", "accept", "main")
    sent += side.send(TOPIC, "other", OTHERS)
    told = side.migrate("rollback", TOPIC, "--accept", "source", code=4)
    assert f"topic shop queue 0: from offset {EARLIER} on the engine has not the messages that were copied" in told
    assert f"from offset {EARLIER} on" in side.migrate("retire", TOPIC, code=4)
    until(lambda: f"from offset {EARLIER} on" in side.notes(), "the standstill of the bridge", COPIED_S_MAX)
    side.set_position(EARLIER)
    until(lambda: side.kafka_ids(TOPIC) == sorted(sent), "the copy of the others", COPIED_S_MAX)
    side.way(TOPIC, "rollback")
    assert side.kafka_ids(TOPIC) == sorted(sent)


def test_a_kafka_that_loses_the_newest_copies_alone_stops_the_copy_back_and_the_rollback_until_an_operators_word(side):
    side.plan(TOPIC)
    side.way(TOPIC, "verify", "cut", "soak")
    sent = side.send(TOPIC, "earlier", EARLIER)
    until(lambda: side.kafka_ids(TOPIC) == sorted(sent), "the copy back", COPIED_S_MAX)
    with side.kafka_away() as data:
        side.keep(data)
    sent += side.send(TOPIC, "lost", LOST)
    until(lambda: side.kafka_ids(TOPIC) == sorted(sent), "the copy back", COPIED_S_MAX)
    with side.bridge_stopped():
        with side.kafka_away() as data:
            side.put_back_partition(data)
        sent += side.produce(TOPIC, "other", OTHERS)
        lost = f"topic {TOPIC} queue 0: from offset {EARLIER} on Kafka has not the engine's messages"
        assert lost in side.migrate("rollback", TOPIC, "--accept", "late", code=4)
    sent += side.send(TOPIC, "later", EARLIER)
    until(lambda: lost in side.notes(), "the standstill of the bridge", COPIED_S_MAX)
    side.set_position(EARLIER)
    until(lambda: side.kafka_ids(TOPIC) == sorted(sent), "the copy of the lost ones and of later ones", COPIED_S_MAX)
    side.way(TOPIC, "rollback")
    assert side.kafka_ids(TOPIC) == sorted(sent)


@pytest.mark.parametrize("what", ["the broker", "one partition"])
def test_sends_to_a_kafka_that_was_put_back_go_on_by_themselves(side, what):
    side.create(TOPIC)
    side.write_plan(TOPIC)
    sent = side.send(TOPIC, "earlier", EARLIER)
    with side.kafka_away() as data:
        side.keep(data)
    side.send(TOPIC, "lost", LOST)
    with side.kafka_away() as data:
        side.put_back(data) if what == "the broker" else side.put_back_partition(data)
    sent += side.send(TOPIC, "later", OTHERS)
    assert {*sent} <= {*side.kafka_ids(TOPIC)}


def test_a_copy_back_goes_on_by_itself_after_kafka_was_restarted_in_order(side):
    side.plan(TOPIC)
    side.way(TOPIC, "verify", "cut", "soak")
    sent = side.send(TOPIC, "earlier", EARLIER)
    until(lambda: side.kafka_ids(TOPIC) == sorted(sent), "the copy back", COPIED_S_MAX)
    with side.kafka_away():
        """Nothing is changed meanwhile."""
    sent += side.send(TOPIC, "later", OTHERS)
    until(lambda: side.kafka_ids(TOPIC) == sorted(sent), "the copy back after the restart", COPIED_S_MAX)
    side.way(TOPIC, "rollback")


def test_a_kafka_that_was_put_back_before_what_was_copied_back_stops_the_next_cut_until_it_is_repaired(side):
    side.create(TOPIC)
    side.produce(TOPIC, "earlier", EARLIER)
    side.write_plan(TOPIC)
    side.way(TOPIC, "verify", "cut", "soak")
    with side.kafka_away() as data:
        side.keep(data)
    sent = side.send(TOPIC, "own", LOST)
    until(lambda: set(sent) <= {*side.kafka_ids(TOPIC)}, "the copy back", COPIED_S_MAX)
    side.way(TOPIC, "rollback")
    with side.kafka_away() as data:
        side.put_back(data)
    side.produce(TOPIC, "other", OTHERS)
    lost = f"from offset {EARLIER} on Kafka has not the engine's messages that were copied back before the rollback"
    assert lost in side.migrate("verify", TOPIC, code=4)
    until(lambda: side.row(TOPIC)["copied"] == EARLIER + OTHERS, "the copy of the others", COPIED_S_MAX)
    assert lost in side.migrate("verify", TOPIC, "--accept", "source", code=4)
    assert "0 ids differ" in side.migrate("verify", TOPIC, "--all", "--repair", code=4)
    assert set(sent) <= {*side.kafka_ids(TOPIC)}
    side.way(TOPIC, "verify", "cut")
    assert side.row(TOPIC)["engine_end"] == EARLIER + LOST + OTHERS
