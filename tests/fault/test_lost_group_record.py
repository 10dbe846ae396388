"""The record of a group with replicas is deleted in ZooKeeper, under load. Nothing that was answered OK is lost, a sentence
tells it, and an operator's word brings the group back.
"""

import pytest

from common.config.errors import StoreUnavailable
from tests.fault.replicated_group import GROUP, ReplicatedGroup
from tests.services.zookeeper import ZooKeeper
from tests.waiting import until


@pytest.fixture
def zookeeper(tmp_path):
    with ZooKeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.fixture
def group(tmp_path, zookeeper):
    with ReplicatedGroup(tmp_path / "group", f"zookeeper://{zookeeper.address}/penstock") as made:
        yield made


WAIT_S = 60.0


def record_of(group):
    try:
        return group.coordination.record(GROUP)
    except StoreUnavailable:
        return None


def test_a_record_that_is_lost_loses_no_message_and_comes_back_by_an_operators_word(group, load):
    load.wait_more(300)
    master = group.master
    group.coordination._client.delete(group.coordination._record_path(GROUP))
    until(lambda: "the record of the group is missing" in group.processes["c1"].told(), "a sentence", WAIT_S)
    assert record_of(group) is None, "nobody begins a group anew while a broker has its log"
    switched = group.call("broker", "switch", GROUP, "--cluster-key", str(group.key), "--to", master, "--force")
    assert switched.returncode == 0, switched.stderr.decode()
    group.wait_in_sync()
    assert group.master == master
    load.wait_more(300)
    load.finish().assert_clean()
