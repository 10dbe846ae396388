"""A topic that was made again in Kafka: what the engine has of the former one is compared with the new one, whatever its offsets were."""

import pytest

from common.kafka.records import Partition
from engine.client import copied
from kafka_bridge.source_identity import source_of
from migration.reconcile.spans import TimeSpan
from tests.unit.migration.reconcile.test_comparison import QUEUE, BothSides, both, engine, kinds  # noqa: F401


def made_again(both, records):  # noqa: F811
    """The topic is deleted and made again with so many records, which are copied by an operator's word."""
    both.cluster.create(both.name, 1)
    both.topic = both.admin.topics([both.name])[both.name]
    both.source = source_of("memory", both.topic, QUEUE)
    state = copied.accept(both.link, both.name, QUEUE, both.source, start=0, replaces=both.number, reason="a test")
    both.number, both.next = state.number, state.next
    both.add(records, minute=100)
    both.copy()


@pytest.mark.parametrize("records", [3, 6, 30])
@pytest.mark.parametrize("is_soaking", [False, True], ids=["mirrored", "rolled back"])
def test_all_messages_of_a_former_topic_are_missing_in_kafka_and_are_written_there_once(both, records, is_soaking):  # noqa: F811
    both.add(6)
    both.copy()
    if is_soaking:
        both.commit_back(4)  # the copy back of before the roll back was there
    made_again(both, records)
    found = both.compare(is_soaking=is_soaking)
    assert sorted(offsets for _, _, (offsets,) in kinds(found)) == [*range(6)]
    assert {kind for kind, _, _ in kinds(found)} == {"missing in Kafka"}
    assert both.repair(found)[:2] == (0, 6)
    both.copy(*range(records, records + 6))  # the copier passes over repairs
    again = both.compare(is_soaking=is_soaking)
    assert (again.kafka, again.engine, kinds(again)) == (records + 6, records + 6, [])


def test_retention_of_the_new_topic_explains_nothing_of_the_former_one(both):  # noqa: F811
    both.add(6)
    both.copy()
    made_again(both, 20)
    both.cluster.starts[Partition(both.name, QUEUE)] = 10
    assert sorted(offsets for _, _, (offsets,) in kinds(both.compare())) == [*range(6)]


def test_a_span_of_times_has_those_of_the_former_topic_that_were_stored_in_it(both):  # noqa: F811
    both.add(6)
    both.copy()
    made_again(both, 3)
    assert len(kinds(both.compare(TimeSpan(from_ms=1)))) == 6
