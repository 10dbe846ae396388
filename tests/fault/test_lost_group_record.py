"""ZooKeeper loses what it has of a group with replicas, under load: its record, or everything, or an empty one answers at
its address. Nothing that was answered OK is lost, a sentence tells it, and an operator's word brings the group back.
"""

import shutil

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


def delete_record(group, zookeeper):
    client = group.coordination._client
    client.delete(group.coordination._record_path(GROUP))


def delete_group(group, zookeeper):
    client = group.coordination._client
    client.delete(group.coordination._path("groups"), recursive=True)


def replace_by_an_empty_one(group, zookeeper):
    zookeeper.stop()
    shutil.rmtree(zookeeper._directory / "data")
    zookeeper.start()


WAIT_S = 60.0
CHANGES = [delete_record, delete_group, replace_by_an_empty_one]


def record_of(group):
    try:
        return group.coordination.record(GROUP)
    except StoreUnavailable:
        return None


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_a_record_that_is_lost_loses_no_message_and_comes_back_by_an_operators_word(group, load, zookeeper, change):
    load.wait_more(300)
    master = group.master
    change(group, zookeeper)
    until(lambda: "the record of the group is missing" in group.processes["c1"].told(), "a sentence", WAIT_S)
    assert record_of(group) is None, "nobody begins a group anew while a broker has its log"
    switched = group.call("broker", "switch", GROUP, "--cluster-key", str(group.key), "--to", master, "--force")
    assert switched.returncode == 0, switched.stderr.decode()
    group.wait_in_sync()
    assert group.master == master
    load.wait_more(300)
    load.finish().assert_clean()
