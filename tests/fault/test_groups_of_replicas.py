"""Two broker groups with two brokers each: a master hangs, another is killed, while topics with and without a buffer are
sent to.

No send is refused and what is answered is stored once: a group among several waits for the switch of its master.
"""

import os
import signal

import pytest

from common.contract import Code
from tests.e2e.running import RunningPenstock
from tests.fault.paced import Paced, compare
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.waiting import until

QUEUES, RATE = 8, 40
TOPICS = {"plain": "off", "safe": "disk"}
SYNC = "SYNC_REPLICATION"
UNLUCKY_MAX = 3
"""Messages of some hundreds: on a machine that is busy with other work a switch may outlast any patience."""


@pytest.fixture(scope="module")
def penstock(tmp_path_factory):
    folder = tmp_path_factory.mktemp("penstock")
    made = RunningPenstock(folder / "data", "--groups", "2", "--replicas", "2", "--no-console").start()
    yield made
    made.end()


@pytest.fixture(scope="module")
def shop(penstock):
    for name, buffer in TOPICS.items():
        penstock.run("topic", "create", name, "--queues", str(QUEUES), "--buffer", buffer)
    who = penstock.application("shop", send=["*"], pull=["*"])
    with Sender(penstock.producer, who) as sender:
        for name in TOPICS:
            retry_until_served(lambda name=name: sender.one(name, b"warm:0:", key="warm").code == Code.OK, name)
    return who


def rows(penstock) -> list[dict]:
    return penstock.run("broker", "list")


def master(penstock, group: str) -> str | None:
    found = [each["broker"] for each in rows(penstock) if each["broker_group"] == group and each["role"] == "master"]
    return found[0] if found else None


def wait_in_sync(penstock) -> None:
    until(lambda: {each["state"] for each in rows(penstock)} == {SYNC}, f"all brokers are in {SYNC}", 60)


def stored(penstock, shop, topic: str) -> list:
    with Puller(penstock.consumer, shop) as puller:
        return puller.read_all("audit", topic, QUEUES)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "is killed"])
def test_a_master_that_ends_costs_no_send_and_no_copy(penstock, shop, number):
    wait_in_sync(penstock)
    group = rows(penstock)[0]["broker_group"]
    first = master(penstock, group)
    loads = {
        name: Paced(
            lambda: penstock.producer, shop, name, RATE, threads=8, keys_a_thread=4, name=f"{number.name}."
        ).start()
        for name in TOPICS
    }
    until(lambda: all(len(load.told) > RATE for load in loads.values()), "messages are stored", 20)
    pid = penstock.kill(first, number)
    until(lambda: master(penstock, group) not in (first, None), "another broker leads", 20)
    done = {name: len(load.told) for name, load in loads.items()}
    until(lambda: all(len(load.told) > done[name] + RATE for name, load in loads.items()), "sends go on", 20)
    told = {name: load.stop() for name, load in loads.items()}
    if number == signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)
    for name in TOPICS:
        good = {Code.OK} if TOPICS[name] == "off" else {Code.OK, Code.BUFFERED}
        assert sum(each.code not in good for each in told[name]) <= UNLUCKY_MAX
        until(
            lambda name=name: not compare(told[name], stored(penstock, shop, name)).lost, "what was buffered is stored"
        )
        found = compare(told[name], stored(penstock, shop, name))
        assert found.broken == {} and found.copies <= UNLUCKY_MAX
    wait_in_sync(penstock)
