"""What was copied last is compared by its content, over a Kafka in memory and a real engine."""

import pytest

from common.config.definitions import CutRecord
from common.kafka.records import Partition
from engine.client import copied
from kafka_bridge.copy_out.page import EngineTopic
from migration.copied_tails import ComingCopy, ReturningCopy, TailChecks
from migration.positions import CopiedTopic
from tests.unit.migration.reconcile.test_comparison import GROUP, QUEUE, BothSides, engine  # noqa: F401


@pytest.fixture
def both(engine):  # noqa: F811
    made = BothSides(engine)
    yield made
    made.link.close()


def coming(both):
    topic = CopiedTopic(both.name, 0, 1)
    copy = ComingCopy(topic, both.topic, both.engine.copied([topic])[both.name])
    return TailChecks(lambda: both.admin, both.open_reader, both.engine).coming([copy])


def returning(both):
    place = EngineTopic(both.link.hello.log_id, both.topic_id)
    committed = both.cluster.committed[GROUP]
    copy = ReturningCopy(
        CopiedTopic(both.name, 0, 1), both.topic, {QUEUE: place},
        {each.number: at.offset for each, at in committed.items()}, committed,
        CutRecord("shop", 1, 0, "main", str(both.topic.id), (0,), (0,)),
    )  # fmt: skip
    return TailChecks(lambda: both.admin, both.open_reader, both.engine).returning([copy])


def test_records_in_the_place_of_lost_ones_are_told_although_all_ends_fit(both):
    both.add(20)
    both.copy()
    both.send(b"own")
    assert coming(both) == {}
    del both.cluster.partitions[both.name][QUEUE][12:]
    both.add(30, 50)
    told = coming(both)[both.name]
    assert "partition 0 offset 19: it has not the record that was copied from there" in told
    assert f"`penstock kafka accept {both.name} --partition 0 --start OFFSET --reason TEXT`" in told
    state = copied.states(both.link, [(both.name, QUEUE)])[0]
    copied.accept(
        both.link, both.name, QUEUE, both.source, start=12, replaces=state.number, reason="an operator's word"
    )
    assert coming(both) == {}


@pytest.mark.parametrize("body", [b"v19", b"another"])
def test_a_record_with_the_same_body_and_another_time_is_another_one(both, body):
    both.add(20)
    both.copy()
    run = both.cluster.partitions[both.name][QUEUE]
    run[19] = run[19]._replace(value=body, timestamp=run[19].timestamp + 1)
    assert coming(both)


def test_what_retention_has_deleted_in_kafka_is_not_asked_for(both):
    both.add(20)
    both.copy()
    both.cluster.starts[Partition(both.name, QUEUE)] = 20
    assert coming(both) == {}


def test_messages_in_the_place_of_copied_ones_are_told_with_the_first_of_them(both):
    both.send(*(b"own%d" % number for number in range(9)))
    for number in range(6):
        both.copy_back(number, b"own%d" % number, 60_000)
    assert returning(both) == {}
    for number in range(6, 9):
        both.copy_back(number, b"lost%d" % number, 60_000)
    assert "queue 0: from offset 6 on the engine has not the messages" in returning(both)[both.name]
    both.copy_back(9, b"beyond the end", 60_000)
    assert "queue 0: from offset 6 on the engine has not the messages" in returning(both)[both.name]
