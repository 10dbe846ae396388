"""Broker groups × brokers of each × fallback buffer × class of durability: an engine hangs, and is killed, under topics of
all kinds at once.

What is answered as stored is stored once and in order, and what is answered as not stored is not stored. Where a group has
a slave, no send is refused: also a group among several waits for the switch of its master.

Short form by default; PENSTOCK_LAYOUTS=1x1,1x2,1x3,2x1,2x2,2x3 names others (`make switchover`).
"""

import os
import signal
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pytest

from common.contract import Code
from tests.e2e.running import Application, RunningPenstock
from tests.fault.paced import Paced, compare
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.waiting import until

LAYOUTS = os.environ.get("PENSTOCK_LAYOUTS", "2x2").split(",")
"""Broker groups, and brokers of each."""
CLASSES = ("memory", "fsync", "replicated", "replicated_fsync")
TOPICS = {f"{buffer}.{durability}": buffer for buffer, durability in product(("off", "disk"), CLASSES)}
QUEUES, RATE = 8, 20
SYNC = "SYNC_REPLICATION"
UNLUCKY_MAX = 3
"""Messages of some hundreds: on a machine that is busy with other work a switch may outlast any patience."""


class Installation(NamedTuple):
    penstock: RunningPenstock
    shop: Application
    groups: int
    brokers: int

    def rows(self) -> list[dict]:
        return self.penstock.run("broker", "list")

    def master(self, group: str) -> str | None:
        return next(
            (each["broker"] for each in self.rows() if each["broker_group"] == group and each["role"] == "master"), None
        )

    def wait_in_sync(self) -> None:
        if self.brokers > 1:
            until(lambda: {each["state"] for each in self.rows()} == {SYNC}, f"all brokers are in {SYNC}", 60)

    def strike(self, number: int) -> tuple[str, int]:
        """Send a signal to the engine of the first group that takes its messages; returns its name and process id."""
        name = next(each for each in sorted(self.penstock.refresh()["pids"]) if each.startswith("engine"))
        if self.brokers == 1:
            return name, self.penstock.kill(name, number)
        group = self.rows()[0]["broker_group"]
        first = self.master(group)
        pid = self.penstock.kill(first, number)
        until(lambda: self.master(group) not in (first, None), "another broker leads", 20)
        return first, pid

    def stored(self, topic: str) -> list:
        with Puller(self.penstock.consumer, self.shop) as puller:
            return puller.read_all("audit", topic, QUEUES)


@pytest.fixture(scope="module", params=LAYOUTS)
def installation(request, tmp_path_factory) -> Iterator[Installation]:
    groups, brokers = map(int, request.param.split("x"))
    folder = tmp_path_factory.mktemp("penstock")
    penstock = RunningPenstock(
        folder / "data", "--groups", str(groups), "--replicas", str(brokers), "--no-console"
    ).start()
    try:
        for name, buffer in TOPICS.items():
            durability = name.partition(".")[2]
            settings = ("--queues", str(QUEUES), "--buffer", buffer, "--durability", durability)
            penstock.run("topic", "create", name, *settings)
        shop = penstock.application("shop", send=["*"], pull=["*"])
        with Sender(penstock.producer, shop) as sender:
            for name in TOPICS:
                retry_until_served(lambda name=name: sender.one(name, b"warm:0:", key="warm").code == Code.OK, name)
        yield Installation(penstock, shop, groups, brokers)
    finally:
        penstock.end()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "is killed"])
def test_what_is_told_of_messages_is_true_when_an_engine_ends(installation, number):
    installation.wait_in_sync()
    penstock = installation.penstock
    loads = {
        name: Paced(
            lambda: penstock.producer, installation.shop, name, RATE, threads=4, keys_a_thread=4, name=f"{number.name}."
        ).start()
        for name in TOPICS
    }
    until(lambda: all(len(load.told) > RATE for load in loads.values()), "messages are stored", 30)
    name, pid = installation.strike(number)
    done = {name: len(load.told) for name, load in loads.items()}
    until(lambda: all(len(load.told) > done[name] + RATE for name, load in loads.items()), "sends are answered", 30)
    if number == signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)
    else:
        penstock.wait_replaced(name, pid)
    told = {name: load.stop() for name, load in loads.items()}
    for name, buffer in TOPICS.items():
        until(
            lambda name=name: not compare(told[name], installation.stored(name)).lost, "what was buffered is stored", 30
        )
        stored = installation.stored(name)
        found = compare(told[name], stored)
        assert found.broken == {} and found.copies <= UNLUCKY_MAX
        bodies = {each.message.body for each in stored}
        refused = [each for each in told[name] if each.code in (Code.UNAVAILABLE, Code.OVERLOADED)]
        assert not [each for each in refused if each.body in bodies], "refused as not stored, and stored"
        if installation.brokers > 1 or buffer != "off":
            good = {Code.OK} if buffer == "off" else {Code.OK, Code.BUFFERED}
            assert sum(each.code not in good for each in told[name]) <= UNLUCKY_MAX
    installation.wait_in_sync()
