"""Controllers and ZooKeeper are lost under a rich load: callers notice nothing while the master lives, and are told when not.

PENSTOCK_OUTAGE_S is the length of each outage of ZooKeeper: some seconds more than a session by default, 60 by
`make switchover`.
"""

import os
import signal
import time

import pytest

from tests.fault.replicated.load import ReplicatedLoad
from tests.fault.replicated_group import ReplicatedGroup
from tests.services.zookeeper import RECONNECT_S, ZooKeeper
from tests.waiting import until

OUTAGE_S = float(os.environ.get("PENSTOCK_OUTAGE_S", "4"))
CONTROLLERS = ("c1", "c2")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def group(tmp_path, zookeeper):
    url = f"zookeeper://{zookeeper.address}/{tmp_path.name}"
    with ReplicatedGroup(tmp_path / "group", url, controllers=CONTROLLERS) as made:
        yield made


@pytest.fixture
def load(group, tmp_path):
    made = ReplicatedLoad(group, tmp_path / "load").start()
    yield made
    made.end()


def work_for(load, seconds):
    """Load for so long, with sends that go on all the time."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        load.wait_more(100)


def assert_unnoticed(load):
    """No call of a client failed, and nothing is lost."""
    load.finish().assert_clean()
    assert load.refused == [], load.facts["refusals"]
    assert load.facts["pulls"].keys() == {"0"}, load.facts["pull_refusals"]


def test_controllers_that_are_killed_one_after_another_are_not_noticed_and_the_next_one_switches(group, load):
    group.wait_in_sync()
    before = group.record
    for name in CONTROLLERS:  # one of them is elected
        load.wait_more(500)
        group.processes[name].end()
        work_for(load, 3)
        assert group.record == before
    for name in CONTROLLERS:
        group.restart(name)
    work_for(load, 1)
    group.switch()
    group.kill(master := group.master)
    group.wait_master_other_than(master)
    group.restart(master)
    group.wait_in_sync()
    work_for(load, 1)
    assert_unnoticed(load)


def test_a_zookeeper_that_hangs_and_one_that_dies_are_not_noticed(group, load, zookeeper):
    group.wait_in_sync()
    before = group.record
    load.wait_more(500)
    zookeeper.kill(signal.SIGSTOP)
    try:
        work_for(load, OUTAGE_S)
    finally:
        zookeeper.kill(signal.SIGCONT)
    until(lambda: group.record.in_sync == before.in_sync, "the record is read again", RECONNECT_S)
    work_for(load, 2)
    zookeeper.stop()
    try:
        work_for(load, OUTAGE_S)
    finally:
        zookeeper.start()
    until(lambda: group.record.in_sync == before.in_sync, "the record is read again", RECONNECT_S)
    work_for(load, 5)
    assert group.record == before, "no master and no member was replaced"
    assert_unnoticed(load)


def test_without_zookeeper_a_dead_master_is_told_in_plain_words_and_replaced_when_it_is_back(group, load, zookeeper):
    group.wait_in_sync()
    master = group.master
    load.wait_more(500)
    zookeeper.stop()
    try:
        work_for(load, 1)
        group.kill(master)
        until(lambda: load.refused, "sends are refused", 10)
    finally:
        zookeeper.start()
    acknowledged = load.acknowledged
    until(lambda: group.master != master, "another broker leads", RECONNECT_S)
    load.wait_more(500, RECONNECT_S)
    assert acknowledged < load.acknowledged
    group.restart(master)
    group.wait_in_sync()
    load.wait_more(500)
    load.finish().assert_clean()
    print(load.facts["refusals"], load.facts["pull_refusals"])
    for _, text, _ in load.facts["refusals"]:
        assert ("broker" in text or "the engine did not tell the topic in time" in text) and "\n" not in text
