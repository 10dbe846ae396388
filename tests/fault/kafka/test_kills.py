"""Kills while plans of each recipe move a topic: operator's command, proxies, bridge, engine, Kafka.

Which process is killed, and in which sub-step, is chosen by a seed. PENSTOCK_KILLS=100 sets how many per recipe,
PENSTOCK_KILLS_SEED which; the defaults are for the check.
"""

import os
import random
from collections import Counter

import pytest

from common.kafka.drivers import installed
from tests.fault.kafka.moving import TOPICS, Member, Moving
from tests.fault.kafka.test_outages import Load, stored_ok
from tests.services import require
from tests.waiting import until

KILLS = int(os.environ.get("PENSTOCK_KILLS", "2"))
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", "1"))
WAY = ("verify", "cut", "soak", "rollback")
KEYS = 5
ALL_S_MAX = 90.0


@pytest.fixture(scope="module")
def moving(tmp_path_factory):
    require(bool(installed()), "pip install penstock[kafka]")
    made = Moving(tmp_path_factory.mktemp("kills"))
    yield made
    made.close()


def assert_equal_and_nothing_lost_or_doubled(moving, topic, load):
    """Doubled on both sides are at most those messages that their caller has sent again."""
    moving.assert_equal(topic)
    in_engine = Counter(moving.engine_ids(topic))
    assert stored_ok(load.codes) <= set(in_engine)
    assert {name for name, count in in_engine.items() if count > 1} <= load.again, "doubled, and sent once"


def test_of_a_double_write_both_sides_end_equal_and_nothing_is_lost_whatever_is_killed(moving):
    topic = TOPICS["double_write"]
    load = Load(moving, topic)
    moving.go("double_write", WAY, KILLS, random.Random(SEED), load)
    load.stop()
    moving.wait_even()
    assert_equal_and_nothing_lost_or_doubled(moving, topic, load)


def test_of_a_mirror_both_sides_end_equal_and_nothing_is_lost_whatever_is_killed(moving):
    topic = TOPICS["mirror"]
    load = Load(moving, topic)
    moving.go("mirror", WAY, KILLS, random.Random(SEED), load)
    load.stop()
    if KILLS % len(WAY) == 2:  # it is cut, and copied back from the soak on
        moving.finish("mirror", "soak")
    until(lambda: sorted(moving.engine_ids(topic)) == sorted(moving.kafka_ids(topic)), "equal sides", ALL_S_MAX)
    assert_equal_and_nothing_lost_or_doubled(moving, topic, load)


def test_of_a_double_read_the_group_gets_everything_in_order_whatever_is_killed(moving):
    topic = TOPICS["double_read"]
    load, member = Load(moving, topic), Member(moving, topic)
    moving.go("double_read", WAY, KILLS, random.Random(SEED), load)
    codes = load.stop()
    wanted = stored_ok(codes)
    until(lambda: wanted <= {*member.found}, "everything at the group", ALL_S_MAX)
    member.stop()
    print(f"{len(wanted)} answered OK, {len(member.found) - len({*member.found})} delivered again after kills")
    first = [name for name in dict.fromkeys(member.found) if name in wanted]
    for key in range(KEYS):
        numbers = [number for number in (int(name[1:]) for name in first) if number % KEYS == key]
        assert numbers == sorted(numbers), f"order of key {key}"
