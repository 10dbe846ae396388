"""The users and access lists of ZooKeeper change under a group with replicas, and the form of its record does: a password
turns, all nodes are taken away and given back, a later version has written the record. A real ZooKeeper, real processes.
"""

import json
from contextlib import suppress

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import make_digest_acl

from common.admin import store_users
from common.admin.administrator import Administrator
from common.config import open_store
from common.config.errors import StoreUnavailable
from tests.fault.replicated_group import GROUP, ReplicatedGroup
from tests.services.zookeeper import ZooKeeper, free_port
from tests.waiting import until

WAIT_S = 60.0
FIRST, NEW, OTHER = "penstock:first", "penstock:new", "other:user"
DENIED = "authentication failed, check auth_file"


@pytest.fixture
def zookeeper(tmp_path):
    with ZooKeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.fixture
def auth(tmp_path):
    path = tmp_path / "auth"
    path.touch(0o600)
    path.write_text(FIRST)
    return path


@pytest.fixture
def group(tmp_path, zookeeper, auth):
    url = f"zookeeper://{zookeeper.address}/penstock?auth_file={auth}"
    with ReplicatedGroup(tmp_path / "group", url) as made:
        yield made


class Hand:
    """The administrator of ZooKeeper, who changes lists of nodes and their content."""

    def __init__(self, address) -> None:
        users = [FIRST, NEW, OTHER]
        self.client = KazooClient(address, auth_data=[("digest", each) for each in users])
        self.client.start()
        self._kept = {}

    def take(self) -> None:
        """Give all nodes to another user."""
        for path in [*self._nodes("/penstock")]:
            self._kept[path] = self.client.get_acls(path)[0]
            self.client.set_acls(path, [make_digest_acl(*OTHER.split(":"), all=True)])

    def give_back(self) -> None:
        for path, acls in self._kept.items():
            with suppress(NoNodeError):  # of a session that has ended
                self.client.set_acls(path, acls)
        self._kept = {}

    def _nodes(self, path):
        try:
            names = self.client.get_children(path)
        except (NoAuthError, NoNodeError):  # a report, which belongs to the processes' common user
            return
        yield path
        for name in names:
            yield from self._nodes(f"{path}/{name}")

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.fixture
def hand(zookeeper):
    made = Hand(zookeeper.address)
    yield made
    made.close()


def turn_password(group, auth):
    """By the runbook."""
    for writers, after in (([FIRST, NEW], NEW), ([NEW], NEW)):
        store = open_store(group.url)
        store_users.set_users(Administrator(store, "test"), writers=writers)
        store.close()
        auth.write_text(after)


def read_master(group) -> str:
    """Empty: the record cannot be read."""
    with suppress(StoreUnavailable):
        return group.master
    return ""


def late(group, module):
    """Another process of a kind, of which nothing is known."""
    name = f"late_{module}"
    options = {"controller": ("--name", "c2"), "engine": ("--broker-group", GROUP, "--broker", "late", "--data",
               group.key.parent / "late", "--listen", f"127.0.0.1:{free_port()}")}  # fmt: skip
    proxy = ("--listen", "127.0.0.1:0", "--engine", ",".join(group.addresses.values()))
    group._add(name, "app", module, *options.get(module, proxy))
    group.processes[name].launch()
    return group.processes[name]


def test_what_is_denied_changes_no_master_and_is_told_and_given_back_all_goes_on(group, load, hand, auth):
    load.wait_more(300)
    before = group.record
    turn_password(group, auth)
    load.wait_more(1000)
    assert group.record == before, "a password that turns is followed by all"
    group.switch()
    group.wait_in_sync()

    hand.take()
    before = json.loads(hand.client.get("/penstock/replication/groups/main/record")[0])
    until(lambda: DENIED in group.processes["c1"].told(), "the controller tells it", WAIT_S)
    load.wait_more(1000)
    assert json.loads(hand.client.get("/penstock/replication/groups/main/record")[0]) == before
    for module in ("producer_proxy", "consumer_proxy"):
        process = late(group, module)
        assert until(lambda process=process: not process.is_running, "it ends", WAIT_S) and DENIED in process.told()
        assert "Traceback" not in process.told() and process.end() == 5
    started = [late(group, module) for module in ("controller", "engine")]

    master = before["master"]
    group.kill(master)
    until(lambda: load.refused, "sends are refused", WAIT_S)
    for process in started:
        until(lambda process=process: DENIED in process.told(), "it tells it", WAIT_S)
    assert json.loads(hand.client.get("/penstock/replication/groups/main/record")[0])["master"] == master
    hand.give_back()
    until(lambda: read_master(group) not in ("", master), "the other leads", WAIT_S)
    group.restart(master)
    until(lambda: len(group.record.in_sync) == 3 and not group.record.joining, "all three, the late one, too", WAIT_S)
    started[1].end()  # proxies do not know its address
    group.wait_in_sync()
    load.wait_more(500)
    load.finish().assert_clean()


@pytest.mark.slow
def test_a_record_of_a_later_version_is_followed_as_far_as_it_is_known_and_named_where_it_is_not(group, load, hand):
    load.wait_more(300)
    path = "/penstock/replication/groups/main/record"

    def write(**changes):
        value = {**json.loads(hand.client.get(path)[0]), **changes}
        hand.client.set(path, json.dumps(value).encode())

    write(later={"a": 1})
    master = group.master
    group.switch()
    assert group.master != master, "a field that is not known is no hindrance"
    group.wait_in_sync()
    master, kept = group.master, hand.client.get(path)[0]
    write(state="LATER_REPLICATION")
    until(lambda: "is no state of a group" in group.processes["c1"].told(), "it is named", WAIT_S)
    load.wait_more(500)
    group.kill(master)
    until(lambda: load.refused, "sends are refused", WAIT_S)
    hand.client.set(path, kept)
    until(lambda: group.record.master != master, "the other leads", WAIT_S)
    group.restart(master)
    group.wait_in_sync()
    load.wait_more(500)
    load.finish().assert_clean()
