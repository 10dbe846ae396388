"""A topic is forgotten on a real log and comes back, with a power cut or a kill at every change of a file in between."""

import logging
from dataclasses import replace
from random import Random

import pytest

from engine.config import LogConfig
from engine.delivery.creations import TOPIC, Creations
from engine.delivery.delivery import Delivery
from engine.delivery.policy import DEFAULTS
from engine.delivery.pull import AckRange, PullRequest
from engine.delivery.receipt import receipt_key
from engine.delivery.topic_expiry import TopicExpiry
from engine.env.simulated import PowerCut, SimulatedEnv
from engine.link.acknowledgement import DONE
from engine.link.pieces import PIECE
from engine.log import open_log
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record, split_records
from engine.timers.timers import Timers
from tests.unit.engine.timers.rig import Rig

HOUR_MS = 3_600_000
OLD = 3


class Family:
    """A family that defines all topics."""

    def id_window_ms(self, topic):
        return 600_000


class Limits:
    """Every topic counts for its application."""

    def most(self, kind, application):
        return 100

    def is_counted(self, kind, name):
        return kind == TOPIC


class Engine:
    """Log, delivery and timers of one engine. Topic orders was used by group g and is empty; three days forget it."""

    def __init__(self) -> None:
        self.env = SimulatedEnv()
        self.stored: list[bytes] = []  # messages of the topic that are acknowledged to their sender
        self.hours = 0
        self.open()
        self.delivery.creations.admit(TOPIC, ["orders"], "app")
        self.log.create_topics([("orders", 2), ("other", 1), ("last", 1)])
        self.send("orders", *[b"old"] * OLD)
        assert self.pull() == [b"old"] * OLD
        self.delivery.write_progress()
        for _ in range(2):
            self.fill()
            self.env.clock_ms += 73 * HOUR_MS
        until_ms = self.env.clock_ms + 60_000
        while self.env.clock_ms < until_ms:
            self.env.clock_ms += self.log.retention.step(self.timers)
        self.stored.clear()
        self.log.checkpoint()
        self.pass_days(4)  # the pull was a use; the second day finds none

    def open(self) -> None:
        self.log = open_log(self.env, "/engine", LogConfig(segment_bytes=8192))
        self.timers = Timers(self.log, self.env.now_ms)
        self.delivery = Delivery(
            self.log, receipt_key(self.log, lambda size: b"k" * size), self.env.now_ms,
            creations=Creations(self.log, Limits()),
        )  # fmt: skip
        self.expiry = TopicExpiry(
            self.log, DEFAULTS, Family(), self.delivery.topic_changes, self.delivery.creations, self.timers,
            self.env.now_ms, lambda: self.hours, 72,
        )  # fmt: skip

    def pass_days(self, days: int) -> None:
        for _ in range(days):
            self.hours += 24
            self.env.clock_ms += 24 * HOUR_MS
            for _ in range(40):
                self.expiry.step(0)

    def send(self, topic: str, *bodies: bytes) -> None:
        found = self.log.topic(topic) or self.log.create_topics([(topic, 2)])[0]
        batch = pack_batch(KIND_MESSAGES, found.id, 0, [pack_record(body) for body in bodies])
        assert self.log.append(batch, 1, self.env.clock_ms)[0][0] == 0
        self.log.when_durable(self.log.end_position, lambda: self.stored.extend(bodies))

    def fill(self) -> None:
        base = self.log.appender.segment_base
        while self.log.appender.segment_base == base:
            self.send("other", bytes(500))

    def pull(self) -> list[bytes]:
        """What group g gets of the topic, acknowledged."""
        bodies: list[bytes] = []

        def take(done):
            data = b"".join(done.pieces)
            acks, at = [], 0
            while at < len(data):
                token, _, delta, _, count, *_, size, _ = PIECE.unpack_from(data, at)
                at += PIECE.size + size
                bodies.extend(split_records(data[at - size : at]))
                acks.append(AckRange(token, delta, count, DONE, -1, b""))
            self.acks = acks

        self.delivery.on_woken(self.log.take_woken(), 0)
        request = PullRequest("g", [("orders", 2)], b"orders", 100, 1 << 20, 0, 10_000, 0, [])
        self.delivery.pull(request, 0, take)
        self.delivery.pull(replace(request, acks=self.acks, max_messages=0), 0, lambda done: None)
        return bodies


def test_without_a_cut_the_topic_is_forgotten_and_comes_back_with_offset_0():
    engine = Engine()
    assert engine.log.end_if_empty(engine.log.topic("orders")) == OLD
    engine.pass_days(1)
    assert engine.log.topic("orders") is None and engine.expiry.expired == 1
    assert engine.delivery.creations.count(TOPIC, "app") == 0
    engine.send("orders", b"new")
    assert engine.log.topic("orders").id == 4
    assert engine.pull() == [b"new"]


@pytest.mark.parametrize("kind", ["power cut", "torn", "kill"])
def test_at_every_cut_no_acknowledged_message_is_lost_and_none_comes_from_the_old_topic(kind, caplog):
    caplog.set_level(logging.CRITICAL)
    seen, cut = set(), 0
    while cut < 200:
        cut += 1
        engine = Engine()
        engine.env.power_cut_at = engine.env.operations + cut
        try:
            engine.pass_days(1)
            engine.send("orders", b"first")
            engine.delivery.write_progress()
            engine.fill()
            engine.log.checkpoint()
            break
        except PowerCut:
            pass
        if kind == "kill":
            engine.env.end_process()
        else:
            engine.env.crash(Random(cut) if kind == "torn" else None)
        engine.open()
        found = engine.log.topic("orders")
        seen.add(None if found is None else found.id)
        if found is not None and found.id == 1:
            assert engine.log.bounds(1, 0) == (OLD, OLD + len(engine.log.read(1, 0, OLD, 10, 1000)))
        assert engine.delivery.creations.count(TOPIC, "app") <= 1
        wanted = [body for body in engine.stored if body == b"first"]
        engine.send("orders", b"last")
        got = engine.pull()
        assert got[-1] == b"last" and set(wanted) <= set(got) <= {b"first", b"last"}, (cut, got)
        assert engine.pull() == []
    assert cut < 200 and {1, 4} <= seen


def test_a_delayed_message_of_days_ago_keeps_the_topic_and_arrives():
    engine = Engine()
    rig = Rig.__new__(Rig)
    rig.topic = engine.log.topic("orders")
    timer = rig.timer("t", engine.env.clock_ms + 40 * 24 * HOUR_MS, queue=1)
    assert engine.timers.add(timer.pack(), 1)[0].code == 0
    engine.pass_days(20)
    assert engine.log.topic("orders").id == 1
    engine.env.clock_ms += 21 * 24 * HOUR_MS
    while engine.timers.step() == 0:
        pass
    assert len(engine.pull()) == 1
