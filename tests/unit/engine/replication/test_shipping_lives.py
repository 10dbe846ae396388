"""Lives of a master and a slave over a slow link that breaks: bytes arrive once, in order, and confirm what is there."""

from collections import deque
from dataclasses import replace
from random import Random

import pytest
from forms import forms, load
from lives import live
from pair import Pair

from common.cluster.group_record import GroupRecord, GroupState
from engine.env.simulated import SimulatedEnv
from engine.log.epochs import common_position
from engine.replication import shipment
from engine.replication.confirmation import Confirmation
from engine.replication.following import Following
from engine.replication.frames import BytesFrame, SegmentFrame, StoredFrame
from engine.replication.shipment import Shipment

EPOCH = 2
WINDOW = 6_000


@pytest.fixture(params=forms())
def world(request, monkeypatch):
    monkeypatch.setattr(shipment, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(shipment, "FRAME_BYTES", WINDOW // 3)
    made = World(load(request.param))
    yield made
    made.pair.close()


class World:
    """A pair whose master has adopted a record that names the slave; frames take 1 to 40 ms each way."""

    def __init__(self, form) -> None:
        self.pair = Pair(form, SimulatedEnv(), SimulatedEnv())
        self.now_ms = 1_000
        self.incarnation = 10
        self.confirmation = Confirmation("a")
        self.record = GroupRecord(EPOCH, GroupState.SYNC_REPLICATION, "a", {"a": 1, "b": self.incarnation})
        self.pair.master.log.epochs.begin(EPOCH, 1, "a")
        self.confirmation.written(self.pair.master.log.end_position)
        self.confirmation.adopt(self.record)
        self.pair.slave.log.refusal.follow('this broker follows "a"')
        self.connect()

    def connect(self) -> None:
        """FOLLOW and its answer; what was on its way is lost."""
        logs = self.pair.master.log, self.pair.slave.log
        common = common_position(*(part for log in logs for part in (log.epochs.history(), log.end_position)))
        assert common == logs[1].end_position, "one epoch: the slave has no bytes of its own"
        self.shipment = Shipment(logs[0].raw, self.incarnation, EPOCH, common, self.now_ms)
        self.following = Following(logs[1].follower, EPOCH, self.now_ms)
        self.forth: deque[tuple[int, SegmentFrame | BytesFrame]] = deque()
        self.back: deque[tuple[int, StoredFrame]] = deque()

    def send(self, random: Random) -> None:
        memory, is_awaited = self.confirmation.confirmed.memory, random.random() < 0.5
        while (frame := self.shipment.next_frame(memory, self.now_ms, is_awaited)) is not None:
            self.forth.append((self.due(self.forth, random), type(frame).decode(frame.encode())))
        assert self.shipment.sent - self.shipment.stored <= WINDOW + self.pair.master.config.segment_bytes

    def due(self, line: deque, random: Random) -> int:
        return max(self.now_ms + random.randint(1, 40), line[-1][0] if line else 0)

    def pass_time(self, random: Random, ms: int) -> None:
        """Deliver what is due, and answer."""
        self.now_ms += ms
        while self.forth and self.forth[0][0] <= self.now_ms:
            frame = self.forth.popleft()[1]
            if isinstance(frame, SegmentFrame):
                self.following.take_segment(frame, self.now_ms)
            else:
                self.following.take_bytes(frame, self.now_ms)
        if self.following.begins_sync(self.now_ms, False):
            assert self.pair.slave.durable()
        if (stored := self.following.report(self.now_ms)) is not None:
            self.back.append((self.due(self.back, random), StoredFrame.decode(stored.encode())))
        while self.back and self.back[0][0] <= self.now_ms:
            told = self.back.popleft()[1]
            self.shipment.told(*told, self.now_ms)
            self.confirmation.stored("b", self.shipment.incarnation, told.end, told.synced)

    def restart_slave(self) -> None:
        """kill -9: what it has stays, and it is another member, which a new record lets join."""
        self.pair.slave.kill()
        self.pair.slave.log.refusal.follow('this broker follows "a"')
        self.incarnation += 1
        self.connect()
        before = self.confirmation.confirmed
        self.confirmation.stored("b", self.incarnation, self.shipment.stored, 0)
        assert self.confirmation.confirmed == before, "another process is no member"
        self.record = replace(self.record, in_sync={"a": 1}, joining={"b": self.incarnation})
        self.confirmation.adopt(self.record)

    def step(self, random: Random) -> None:
        kind = random.random()
        master = self.pair.master.log
        if kind < 0.35:
            live(self.pair.master, random, random.randint(1, 6))
            self.confirmation.written(master.end_position)
        elif kind < 0.45:
            assert self.pair.master.durable()
            self.confirmation.synced(master.durable_position)
        elif kind < 0.48:
            self.connect()
        elif kind < 0.5:
            self.restart_slave()
        else:
            self.send(random)
            self.pass_time(random, random.choice((0, 1, 10, 50)))

    def check(self) -> None:
        master, slave = self.pair.master.log, self.pair.slave.log
        assert self.confirmation.confirmed.memory <= slave.end_position <= master.end_position
        assert self.following.confirmed <= self.confirmation.confirmed.memory


@pytest.mark.parametrize("seed", range(10))
def test_confirmed_bytes_are_on_the_slave_and_all_arrive_in_the_end(world, seed):
    random = Random(seed)
    for _ in range(400):
        world.step(random)
        world.check()
    master = world.pair.master.log
    assert world.pair.master.durable()
    world.confirmation.synced(master.durable_position)
    for _ in range(1000):
        if world.following.confirmed == master.end_position:
            break
        world.send(random)
        world.pass_time(random, 20)
        world.check()
    assert world.following.confirmed == world.confirmation.confirmed.memory == master.end_position
    world.pair.assert_equal()
