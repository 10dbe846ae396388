"""Links of a group of two are cut under load, each process on a host of its own (network namespaces).

What docs/replicas.md says of each cut holds: another master or none, the longest time without an acknowledged message, no
failed send, and nothing acknowledged by a master that was replaced. Clients that reach the old master alone go on sending
to it all the time, through a proxy on its host.

PENSTOCK_CUTS_EACH=20 repeats each cut so many times, and PENSTOCK_STALE_S=60 stops a master for a minute (`make partitions`).
"""

import os
import signal
import time
from itertools import pairwise

import pytest

from common.contract import Durability
from tests.fault.cuts import CASES, LEAVES, NOTHING, SWITCH, Roles
from tests.fault.load import Producers
from tests.fault.replicated_group import PROXY_HOST, ReplicatedGroup
from tests.fault.verdict import assert_nothing_lost_or_invented
from tests.services.network import Network, both
from tests.services.zookeeper import ZooKeeper
from tests.waiting import until

EACH = int(os.environ.get("PENSTOCK_CUTS_EACH", "1"))
STALE_S = float(os.environ.get("PENSTOCK_STALE_S", "4"))
BROKERS, CONTROLLER, ZOO = ("a", "b"), "c1", "zoo"
HOSTS = (*BROKERS, CONTROLLER, ZOO, PROXY_HOST)
GAP_S = 2.5
CALM_GAP_S = 1.0
"""Longest time without an acknowledged message where nothing is to happen; it is the machine's."""
UNNOTICED_S = 4.0
"""Longer than a ZooKeeper session and all time-outs."""
CUT_S = 2.5
ACKS_BETWEEN = 100


class Cluster:
    """The running group on its hosts."""

    def __init__(self, network: Network, group: ReplicatedGroup) -> None:
        self.network, self.group = network, group
        self.shop = group.application("shop", send=["*"], pull=["*"])

    def begin(self, topic: str) -> None:
        """With new topics, and a controller that remembers no failed joins."""
        self.group.processes[CONTROLLER].end(signal.SIGTERM)
        self.group.processes[CONTROLLER].start()
        for each in (topic, f"near-{topic}"):
            self.group.run("topic", "create", each, "--queues", "4")
        self.group.wait_in_sync()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("partitions")
    with (
        Network(*HOSTS) as network,
        ZooKeeper(folder / "zoo", network.address(ZOO), network.inside(ZOO)) as zookeeper,
        ReplicatedGroup(folder, f"zookeeper://{zookeeper.address}/test", network, brokers=BROKERS,
                        near_proxies=True, engine_options=("--segment-mib", "64")) as group,
    ):  # fmt: skip
        yield Cluster(network, group)


class Load:
    """Producers at the common proxy, and others that reach one broker only."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self.near = ""
        group = cluster.group
        replicated = {"durability": Durability.REPLICATED}
        self.common = Producers(lambda: group.producer, cluster.shop, topic, **replicated)
        self.at_master = Producers(
            lambda: group.near_producer(self.near), cluster.shop, f"near-{topic}", count=2, **replicated
        )

    def start(self, master: str) -> None:
        self.near = master
        self.common.start()
        self.at_master.start()
        self.at_master.wait_more(ACKS_BETWEEN // 4)
        self.common.wait_more(ACKS_BETWEEN)

    def stop(self) -> None:
        self.common.stop()
        self.at_master.stop()

    def judge(self) -> None:
        """Nothing is lost."""
        for topic, producers in ((self._topic, self.common), (f"near-{self._topic}", self.at_master)):
            assert_nothing_lost_or_invented(self._cluster.group, self._cluster.shop, topic, producers.sent)

    def judge_all_sent(self) -> None:
        """And no send of the common producers has failed."""
        self.judge()
        refused = [each for each in self.common.sent if each.outcome != "ok"]
        assert refused == [], self._cluster.group.logs()

    def gap_s(self, since_s: float) -> float:
        """Longest time without an acknowledged message since then, at the common proxy."""
        times = sorted(each for each in self.common.acknowledged_at if each >= since_s)
        return max((after - before for before, after in pairwise([since_s, *times, time.monotonic()])), default=0.0)

    def stale(self, since_s: float) -> list[float]:
        """Times of what the old master has acknowledged since then."""
        return [each - since_s for each in self.at_master.acknowledged_at if each > since_s]


@pytest.fixture
def load(cluster, request):
    topic = f"t{abs(hash(request.node.name)) % 10**8}"
    cluster.begin(topic)
    made = Load(cluster, topic)
    yield made
    made.common.stop()
    made.at_master.stop()


def wait_for(effect: str, group: ReplicatedGroup, master: str) -> float:
    """Wait until a record says so; returns when."""
    if effect == SWITCH:
        group.wait_master_other_than(master)
    elif effect == LEAVES:
        until(lambda: list(group.record.in_sync) == [master], "the master to be alone")
    return time.monotonic()


@pytest.mark.parametrize("case", CASES, ids=[each.name for each in CASES])
def test_a_cut_has_the_effect_that_is_promised(cluster, load, case):
    group, gaps = cluster.group, []
    for _ in range(EACH):
        group.wait_in_sync()
        master, slave, version = group.master, group.slave, group.version
        load.start(master)
        since_s = time.monotonic()
        with cluster.network.cut(*case.pairs(Roles(master, slave, [CONTROLLER], ZOO, HOSTS))) as cut:
            decided_s = wait_for(case.effect, group, master)
            load.common.wait_more(ACKS_BETWEEN)
            last_s = UNNOTICED_S if case.effect == NOTHING else CUT_S
            until(lambda end_s=since_s + last_s: time.monotonic() > end_s, "the cut's time", last_s + 1)
            load.common.wait_more(ACKS_BETWEEN)
            gaps.append(load.gap_s(since_s))
            assert cut.dropped > 0, "nothing was sent over this link"
            if case.effect == NOTHING:
                assert group.version == version and gaps[-1] < CALM_GAP_S, group.logs()
            if case.effect == SWITCH:
                assert load.stale(decided_s) == []
        group.wait_in_sync()
        load.stop()
        if case.effect == SWITCH:
            assert load.stale(decided_s) == []
    print(f"{case.name}: gaps in ms {sorted(round(each * 1000) for each in gaps)}")
    load.judge_all_sent()
    assert max(gaps) < GAP_S


def test_a_master_that_was_stopped_and_goes_on_after_a_long_time_acknowledges_nothing(cluster, load):
    group = cluster.group
    master = group.master
    load.start(master)
    since_s = time.monotonic()
    group.kill(master, signal.SIGSTOP)
    try:
        decided_s = wait_for(SWITCH, group, master)
        load.common.wait_more(ACKS_BETWEEN)
        gap_s = load.gap_s(since_s)
        until(lambda: time.monotonic() > since_s + STALE_S, "its time", STALE_S + 1)
    finally:
        group.kill(master, signal.SIGCONT)
    group.wait_in_sync()
    load.stop()
    print(f"gap {gap_s * 1000:.0f} ms")
    assert load.stale(decided_s) == []
    load.judge_all_sent()
    assert gap_s < GAP_S


def test_a_lone_master_without_zookeeper_acknowledges_nothing_until_it_is_back(cluster, load):
    group = cluster.group
    master, slave = group.master, group.slave
    load.start(master)
    group.kill(slave)
    wait_for(LEAVES, group, master)
    load.common.wait_more(ACKS_BETWEEN)
    with cluster.network.cut(*both((master, ZOO))) as cut:
        cut_s = time.monotonic()
        until(lambda: time.monotonic() > cut_s + UNNOTICED_S, "the cut's time", UNNOTICED_S + 1)
        assert [each for each in load.common.acknowledged_at if each > cut_s + 2.5] == []
        assert cut.dropped > 0
    load.common.wait_more(ACKS_BETWEEN)
    group.restart(slave)
    group.wait_in_sync()
    load.stop()
    load.judge()


def test_proxies_that_are_cut_from_a_master_of_a_whole_group_fail_and_lose_nothing(cluster, load):
    group = cluster.group
    master, version = group.master, group.version
    load.start(master)
    with cluster.network.cut(*both((master, PROXY_HOST))) as cut:
        until(lambda: load.common.sent[-1].outcome != "ok", "a send to fail", 10)
        load.at_master.wait_more(ACKS_BETWEEN)
        assert cut.dropped > 0 and group.version == version, "to all others the master is well"
    load.common.wait_more(ACKS_BETWEEN)
    load.stop()
    load.judge()
