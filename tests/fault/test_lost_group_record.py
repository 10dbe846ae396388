"""The record of a group with replicas is deleted in ZooKeeper, or all that it has, under load. Nothing that was answered OK is
lost, a sentence tells it, and an operator's word brings the group back. No process has to be restarted.
"""

import json
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


WAIT_S = 60.0


def record_of(group):
    try:
        return group.coordination.record(GROUP)
    except StoreUnavailable:
        return None


def switch(group, master, *options):
    group.run("broker", "switch", GROUP, "--cluster-key", str(group.key), "--to", master, *options)


def test_a_record_that_is_lost_loses_no_message_and_comes_back_by_an_operators_word(group, load):
    load.wait_more(300)
    master = group.master
    group.coordination._client.delete(group.coordination._record_path(GROUP))
    until(lambda: "the record of the group is missing" in group.processes["c1"].told(), "a sentence", WAIT_S)
    assert record_of(group) is None, "nobody begins a group anew while a broker has its log"
    switch(group, master, "--force")
    group.wait_in_sync()
    assert group.master == master
    load.wait_more(300)
    load.finish().assert_clean()


def current(group):
    """The processes that follow the configuration."""
    members = json.loads(group.call("config", "members", "-o", "json").stdout)
    return {each["name"] for each in members if each["state"] == "current"}


def test_a_zookeeper_that_comes_back_empty_is_reached_again_by_all_that_runs(group, zookeeper, load, tmp_path):
    load.wait_more(300)
    master, saved = group.master, tmp_path / "saved.json"
    group.run("topic", "create", "before")
    saved.write_bytes(group.call("config", "export").stdout)
    for number in range(100):  # the new one has fewer
        group.coordination._client.create(f"/{number}", b"")
    group.run("topic", "create", "the-last-change-that-all-have-seen")
    processes = current(group)
    assert len(processes) == 4, "brokers and proxies"
    zookeeper.stop()
    shutil.rmtree(zookeeper.data)
    zookeeper.start()
    until(lambda: "the record of the group is missing" in group.processes["c1"].told(), "a sentence", WAIT_S)
    group.run("config", "apply", str(saved))
    until(lambda: current(group) == processes, "all processes to follow it", WAIT_S)
    group.run("topic", "create", "after")
    switch(group, master, "--force")
    group.wait_in_sync()
    load.wait_more(300)
    load.finish().assert_clean()


def test_a_zookeeper_that_was_put_back_makes_nobody_master_by_its_older_record(group, zookeeper, load, tmp_path):
    """By that, the old master has everything once it has restarted, while the new one is away that has led since."""
    load.wait_more(300)
    old, new = group.master, group.slave
    zookeeper.stop()
    shutil.copytree(zookeeper.data, tmp_path / "copy")
    zookeeper.start()
    until(lambda: record_of(group), "contact", WAIT_S)
    switch(group, new)
    group.processes[old].end()
    until(lambda: group.record.in_sync.keys() == {new}, "the new master is alone", WAIT_S)
    load.wait_more(300)
    zookeeper.stop()
    shutil.rmtree(zookeeper.data)
    shutil.move(tmp_path / "copy", zookeeper.data)
    zookeeper.start()
    until(lambda: "than was in force" in group.processes["c1"].told(), "a sentence", WAIT_S)
    older = until(lambda: record_of(group), "contact", WAIT_S)
    group.processes[new].end()
    group.processes[old].start()
    until(lambda: group.coordination.brokers(GROUP).keys() == {old}, "only the old one is registered", WAIT_S)
    group.processes[new].start()
    until(lambda: group.coordination.brokers(GROUP).keys() == {old, new}, "the new one is back", WAIT_S)
    assert record_of(group) == older, "nobody was made master"
    switch(group, new, "--force")
    group.wait_in_sync()
    load.wait_more(300)
    load.finish().assert_clean()
