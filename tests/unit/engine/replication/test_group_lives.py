"""Lives of three brokers with their logs under a controller: kills, power cuts, broken links, late records and reports.

What was answered as durable is in the log of the last master; so is what was answered from memory, unless power was cut.
"""

from collections import deque
from random import Random

import pytest
from forms import forms, load
from machine import Machine
from pair import cut

from common.cluster.reports import BrokerView
from controller.decision import decide
from engine.env.simulated import SimulatedEnv
from engine.errors import LogError
from engine.replication.broker import GroupBroker, UnsoundLogError
from engine.replication.follow import FollowStep
from engine.replication.following import StaleEpochError
from engine.replication.frames import Follow, Followed

NAMES = "abc"


class Node:
    """One machine with a broker's process."""

    def __init__(self, name: str, form, header) -> None:
        env = SimulatedEnv()
        env.make_directory("/data/log")
        form.segment.create_segment(env, "/data/log", header).close()
        self.name, self.number, self.cut_off_until_ms = name, 0, 0
        self.machine = Machine.__new__(Machine)
        self.machine.form, self.machine.env, self.machine.directory = form, env, "/data"

    def start(self, continues: frozenset[int]) -> None:
        self.number += 1
        self.incarnation = 100 * (1 + NAMES.index(self.name)) + self.number
        self.broker = GroupBroker(self.name, self.incarnation, self.machine.log, continues)
        self.continues = continues | {self.incarnation}

    def is_cut_off(self, now_ms: int) -> bool:
        return now_ms < self.cut_off_until_ms


class Group:
    """Three brokers, a store with the newest record, and a controller that sees old reports."""

    def __init__(self, form, random: Random) -> None:
        first = Machine(form, SimulatedEnv(), "/data")
        header = first.log.segments.active.header
        self.random, self.now_ms, self.seen_ms, self.record, self.version = random, 1000, 1000, None, 0
        self.nodes = {name: Node(name, form, header) for name in NAMES}
        for node in self.nodes.values():
            node.machine.config = first.config
            node.machine.open()
            node.start(frozenset())
        first.close()
        self.views: dict[str, BrokerView] = {}
        self.links: dict[str, deque] = {}  # slave -> [due, frame], from the master that it follows
        self.backs: dict[str, deque] = {}
        self.masters: dict[str, str] = {}  # slave -> the master at the other end of its link
        self.waiting: list[tuple[str, int, int, bytes]] = []  # master, its incarnation, end, body
        self.durable: set[bytes] = set()
        self.told: set[bytes] = set()
        self.sent = self.cuts = self.switches = self.truncations = 0
        self.cut_share = random.choice((0, 0, 0.1, 0.4))

    # -- the controller

    def decide(self) -> None:
        decision = decide(self.version, self.record, self.views, age_s=(self.now_ms - self.seen_ms) / 1000)
        if decision.record is not None:
            if self.record is not None and decision.record.master != self.record.master:
                self.switches += 1
            self.record, self.version, self.seen_ms = decision.record, self.version + 1, self.now_ms

    def adopt(self, node: Node) -> None:
        if self.record is not None:
            try:
                if node.broker.adopt(self.version, self.record, self.now_ms):
                    self.cut_links_of(node)
            except UnsoundLogError as error:
                self.cut_log(node, error.position)

    # -- links

    def cut_link(self, slave: str) -> None:
        if slave in self.masters:
            self.nodes[self.masters.pop(slave)].broker.left(slave, self.now_ms)
            del self.links[slave], self.backs[slave]

    def connect(self, slave: str) -> None:
        """FOLLOW, its answer, and what the slave does with it."""
        self.cut_link(slave)
        node = self.nodes[slave]
        if self.record is None or self.record.master == slave:
            return
        master = self.nodes[self.record.master]
        if master.is_cut_off(self.now_ms):
            return
        try:
            asked = Follow.decode(node.broker.ask().encode())
            answer = Followed.decode(master.broker.follow(slave, asked, self.now_ms).encode())
        except LogError:
            return
        self.links[slave], self.backs[slave], self.masters[slave] = deque(), deque(), master.name
        step = node.broker.answered(answer, self.now_ms)
        if step is FollowStep.TRUNCATE:
            self.cut_log(node, answer.common)
        elif step is None:
            self.cut_link(slave)

    def cut_log(self, node: Node, position: int) -> None:
        cut(node.machine, position)
        self.truncations += 1
        self.restarted(node, frozenset())

    def restarted(self, node: Node, continues: frozenset[int]) -> None:
        self.cut_links_of(node)
        node.start(continues)

    def cut_links_of(self, node: Node) -> None:
        for slave in [slave for slave, master in self.masters.items() if node.name in (slave, master)]:
            self.cut_link(slave)

    def send(self, slave: str) -> None:
        master = self.nodes[self.masters[slave]].broker
        for frame in master.frames(slave, self.now_ms):
            self.links[slave].append((self.now_ms + self.random.randint(0, 30), frame))

    def deliver(self, slave: str) -> None:
        node, link, back = self.nodes[slave].broker, self.links[slave], self.backs[slave]
        try:
            while link and link[0][0] <= self.now_ms:
                node.take(link.popleft()[1], self.now_ms)
        except StaleEpochError:
            self.cut_link(slave)
            return
        if (stored := node.tell(self.now_ms)) is not None:
            back.append((self.now_ms + self.random.randint(0, 30), stored))
        while back and back[0][0] <= self.now_ms:
            self.nodes[self.masters[slave]].broker.stored(slave, *back.popleft()[1], self.now_ms)

    # -- steps

    def append(self, node: Node) -> None:
        if not node.broker.is_master:
            return
        body = b"message %d " % self.sent + bytes(self.random.randrange(200))
        self.sent += 1
        if not node.machine.log.topics():
            node.machine.log.create_topics([("first", 4)])
        node.machine.append(1, 0, body)
        node.broker.confirmation.advance(node.machine.log.end_position, node.machine.log.durable_position)
        self.waiting.append((node.name, node.incarnation, node.machine.log.end_position, body))

    def answer(self) -> None:
        left = []
        for name, incarnation, end, body in self.waiting:
            node = self.nodes[name]
            if node.incarnation != incarnation or not node.broker.is_master:
                continue  # no answer ever came
            confirmed = node.broker.confirmed
            if confirmed.memory >= end:
                self.told.add(body)
            if confirmed.fsync >= end:
                self.durable.add(body)
            else:
                left.append((name, incarnation, end, body))
        self.waiting = left

    def sync(self, node: Node) -> None:
        assert node.machine.durable()
        if node.broker.is_master:
            node.broker.confirmation.advance(node.machine.log.end_position, node.machine.log.durable_position)

    def step(self, has_faults: bool) -> None:
        random, node = self.random, self.nodes[self.random.choice(NAMES)]
        self.now_ms += random.choice((0, 1, 10, 60) if has_faults else (0, 1, 5))
        kind = random.random()
        if has_faults and kind < 0.02:
            self.fault(node)
        elif kind < 0.2:
            self.append(node)
        elif kind < 0.3:
            self.sync(node)
        elif kind < 0.4:
            self.decide()
        elif node.is_cut_off(self.now_ms):
            self.views[node.name] = BrokerView(node.incarnation, None)
        elif kind < 0.5:
            self.adopt(node)
        elif kind < 0.6:
            self.views[node.name] = BrokerView(node.incarnation, node.broker.report(self.now_ms))
        elif node.name in self.masters:
            self.send(node.name)
            self.deliver(node.name)
        elif kind < 0.7 and not node.broker.is_master:
            self.connect(node.name)
        self.answer()

    def fault(self, node: Node) -> None:
        kind = self.random.random()
        if kind < 0.2:
            self.cut_link(node.name)
        elif kind < 0.6:  # it goes on by itself: clients still reach it
            self.cut_links_of(node)
            node.cut_off_until_ms = self.now_ms + self.random.randint(0, 3000)
        elif kind < 1 - self.cut_share:
            node.machine.kill()
            self.restarted(node, node.continues)
        else:
            node.machine.crash(self.random)
            self.cuts += 1
            self.restarted(node, frozenset())

    def settle(self) -> None:
        """Without faults, until all three are in sync and equal."""
        self.now_ms += 3000
        for _ in range(4000):
            self.step(has_faults=False)
            if self.record is not None and len(self.record.in_sync) == 3:
                ends = {node.machine.log.end_position for node in self.nodes.values()}
                if len(ends) == 1:
                    return
        raise AssertionError(f"not settled: {self.record}, {self.views}")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("form", forms())
def test_what_was_answered_is_in_the_log_of_the_last_master(form, seed):
    group = Group(load(form), Random(seed))
    for _ in range(1500):
        group.step(has_faults=True)
    group.settle()
    master = group.nodes[group.record.master].machine
    kept = set(master.bodies(1, 0)) if master.log.topics() else set()
    assert group.durable <= kept
    if not group.cuts:
        assert group.told <= kept
    for node in group.nodes.values():
        assert node.machine.bodies(1, 0) == master.bodies(1, 0)
