"""Timers of a slave that becomes master: it fires what its master has not fired, and nothing twice."""

from random import Random

import pytest

from engine.env.simulated import SimulatedEnv
from engine.log import open_log
from engine.log.segment.segment import create_segment
from engine.timers.timers import Timers
from tests.unit.engine.timers.rig import Rig


class Slave(Rig):
    """Gets the bytes of another rig's log, and has no timers until it leads."""

    def __init__(self, master: Rig) -> None:
        self.env, self.config, self.topic = SimulatedEnv(), master.config, master.topic
        self.env.make_directory("/engine/log")
        header = master.log.segments.at(0).header
        create_segment(self.env, "/engine/log", header).close()
        self.log = open_log(self.env, "/engine", self.config)
        self._master = master

    def follow(self) -> None:
        raw = self._master.log.raw
        while self.log.end_position != raw.end_position:
            position = self.log.end_position
            if data := raw.read(position, 5_000):
                self.log.follower.apply(position, data)
            else:
                self.log.follower.begin_segment(raw.next_segment(position)[1])

    def start(self) -> None:
        """kill -9 and start again, with no timers yet."""
        self.env.end_process()
        self.log = open_log(self.env, "/engine", self.config)

    def lead(self) -> None:
        self.env.clock_ms = self._master.env.clock_ms
        self.log.lead(lambda position, callback: callback())
        self.log.epochs.begin(self.log.epoch + 1, 1, "slave")
        self.timers = Timers(self.log, self.env.now_ms)

    def lead_without_timers(self) -> None:
        """Become master, and fill a segment before there are timers."""
        self.log.lead(lambda position, callback: callback())
        first = self.log.segments.active.base
        while self.log.segments.active.base == first:
            self.log.epochs.begin(self.log.epoch + 1, 1, "slave")


def live(rig: Rig, random: Random, steps: int, ids: list[str]) -> None:
    for _ in range(steps):
        kind = random.random()
        if kind < 0.5:
            ids.append(f"m{len(ids)}")
            assert rig.add(ids[-1], rig.now_ms + random.randrange(1, 3000)) == 0
        elif kind < 0.6:
            rig.fill()
        elif kind < 0.65 and ids:
            rig.cancel(random.choice(ids))
        elif kind < 0.7:
            rig.sync()
        else:
            rig.env.clock_ms += random.randrange(300)
            rig.timers.step()


@pytest.mark.parametrize("seed", range(12))
def test_every_delayed_message_comes_once_over_a_promotion(seed):
    random, ids = Random(seed), []
    master = Rig()
    slave = Slave(master)
    for _ in range(random.randrange(1, 5)):
        live(master, random, 60, ids)
        slave.follow()
    before = slave.fired()
    slave.lead()
    pending = len(slave.timers.table)
    live(slave, random, 20, ids)
    slave.advance(10_000)
    fired = slave.fired()
    assert len(fired) == len(set(fired))
    assert set(before) <= set(fired) <= set(ids)
    assert len(slave.timers.table) == 0
    assert pending or len(before) > 3


@pytest.mark.parametrize("seed", range(6))
def test_a_promotion_and_a_start_find_the_same_timers(seed):
    random, ids = Random(100 + seed), []
    master = Rig()
    slave = Slave(master)
    live(master, random, 200, ids)
    slave.follow()
    slave.lead()
    led = len(slave.timers.table), sorted(slave.fired())
    slave.kill()
    assert (len(slave.timers.table), sorted(slave.fired())) == led


def test_what_a_start_has_found_to_have_fired_outlives_an_end_before_its_timers_are_made():
    master, random = Rig(), Random(5)
    slave = Slave(master)
    ids: list[str] = []
    live(master, random, 60, ids)
    master.sync()
    for name in ("late", "later"):
        master.add(name, master.now_ms + 10)
    master.env.clock_ms += 20
    master.timers.step()
    slave.follow()
    slave.start()
    slave.lead_without_timers()
    slave.start()
    slave.lead()
    slave.advance(10_000)
    fired = slave.fired()
    assert {"late", "later"} <= set(fired)
    assert len(fired) == len(set(fired))
