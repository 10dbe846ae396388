"""Walks docs/design/0046-outside-changes.md: all of Kafka, or the engine, changes while topics are in each state between the
steps of plans. One broker for all cells.
"""

from contextlib import closing

import pytest

from tests.fault.kafka.every_state import BACK, DUAL, FIRST, HOME, MIRROR, READ_BOTH, STATES, SWAPPED, EveryState, topic
from tests.fault.kafka.test_shapes_and_positions import FOLLOWED_S_MAX
from tests.waiting import until

pytestmark = pytest.mark.slow  # test_put_back.py and test_changed_topics.py are its short form
ENGINE_BACK, KAFKA_BACK, OTHER = "engine-back", "kafka-back", "other"
PLANS = [
    (MIRROR, KAFKA_BACK, ENGINE_BACK, OTHER), (HOME, KAFKA_BACK, OTHER), (READ_BOTH, KAFKA_BACK, ENGINE_BACK, OTHER),
    (DUAL, KAFKA_BACK), (DUAL, ENGINE_BACK), (DUAL, OTHER), (SWAPPED, KAFKA_BACK), (SWAPPED, ENGINE_BACK), (SWAPPED, OTHER),
    (BACK, KAFKA_BACK), (BACK, OTHER),
]  # fmt: skip
LOST, OTHERS = 7, 12
COUNTS = "since the last change of its sides Kafka has got"


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    with closing(EveryState(tmp_path_factory.mktemp("walk"))) as made:
        yield made.reach(PLANS)


def test_a_broker_that_restarts_is_followed_in_every_state(walk):
    with walk.kafka_away():
        pass
    walk.fill(OTHER, "restarted", 10, STATES)
    walk.check(OTHER, STATES)


def test_an_engine_that_was_put_back_gets_again_what_kafka_has_and_stops_a_double_write(walk):
    with walk.penstock_away() as data:
        walk.keep(data)
    walk.fill(ENGINE_BACK, "lost", LOST, (MIRROR, DUAL, SWAPPED, READ_BOTH))
    walk.check(ENGINE_BACK, (MIRROR, DUAL, SWAPPED, READ_BOTH))
    with walk.penstock_away() as data:
        walk.put_back(data)
    walk.penstock.run("broker-group", "accept", "main")
    walk.fill(ENGINE_BACK, "other", OTHERS, (MIRROR, DUAL, SWAPPED, READ_BOTH))
    walk.check(ENGINE_BACK, (MIRROR,))
    walk.pull_all(topic(READ_BOTH, ENGINE_BACK), again=walk.got[topic(READ_BOTH, ENGINE_BACK)][FIRST : FIRST + LOST])
    for state, command in ((DUAL, "cut"), (SWAPPED, "rollback")):
        assert f"{topic(state, ENGINE_BACK)} queue 0: {COUNTS}" in walk.refused(state, ENGINE_BACK, command)


def test_a_kafka_that_was_put_back_and_filled_again_while_the_bridge_runs_is_told_or_followed(walk):
    with walk.kafka_away() as data:
        walk.keep(data)
    walk.fill(KAFKA_BACK, "lost", LOST, STATES)
    walk.check(KAFKA_BACK, STATES)
    with walk.bridge_stopped():
        with walk.kafka_away() as data:
            walk.put_back(data)
        for state in (MIRROR, READ_BOTH):
            walk.sent[topic(state, KAFKA_BACK)] += walk.produce(topic(state, KAFKA_BACK), "other", OTHERS)
    walk.fill(KAFKA_BACK, "other", OTHERS, (HOME, DUAL, SWAPPED, BACK))
    walk.is_told(f'"{topic(MIRROR, KAFKA_BACK)}" partition 0 offset {FIRST + LOST - 1}: it has not the record')
    walk.is_told(topic(HOME, KAFKA_BACK), "Kafka has lost records")
    walk.check(KAFKA_BACK, (BACK, READ_BOTH))
    for state, command in ((DUAL, "cut"), (SWAPPED, "rollback")):
        assert f"{topic(state, KAFKA_BACK)} queue 0: {COUNTS}" in walk.refused(state, KAFKA_BACK, command)
    walk.way(topic(BACK, KAFKA_BACK), "rollback")


def test_another_cluster_at_the_address_is_told_and_all_goes_on_when_the_right_one_is_back(walk):
    named = [topic(state, OTHER) for state in STATES]
    with walk.another_cluster(named):
        walk.is_told(topic(MIRROR, OTHER), "belongs to another cluster")
        walk.is_told(topic(HOME, OTHER), "belongs to another cluster")
        for state, command in ((DUAL, "cut"), (SWAPPED, "rollback"), (BACK, "rollback")):
            assert "another cluster" in walk.refused(state, OTHER, command)
    walk.fill(OTHER, "right", 10, STATES)
    until(lambda: topic(MIRROR, OTHER) not in walk.notes(), "the mirror goes on", FOLLOWED_S_MAX)
    walk.check(OTHER, STATES)
