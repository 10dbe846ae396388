"""A slave's log over the real link to a played master: what the link takes is in the files, the index and what is told."""

import os

import pytest

from common.cluster.group_record import GroupRecord, GroupState
from engine.broker.master_link import NATIVE, MasterLink
from engine.config import LogConfig
from engine.env.native import NodeClock
from engine.env.real import RealEnv
from engine.link import layout
from engine.log.format import pack_batch, pack_record
from engine.log.log import open_log
from engine.log.segment.segment import create_segment
from engine.replication.broker import GroupBroker
from engine.replication.frames import BytesFrame
from tests.contract.link_engine import turn_until
from tests.contract.test_master_link import EPOCH, FORMS, KEY, Master

NOW = 1_700_000_000_000
TOPIC = 1


class Slave:
    """A broker with a real log and group."""

    def __init__(self, store) -> None:
        self.store = store
        self.group = GroupBroker("s", 1, store)
        self.group.adopt(1, GroupRecord(EPOCH, GroupState.SYNC_REPLICATION, "m", {"m": 9, "s": 1}), 0)
        self.cuts: list[int] = []

    def cut_log(self, position: int) -> None:
        self.cuts.append(position)

    def told(self) -> None: ...


@pytest.fixture
def logs(tmp_path):
    env = RealEnv()
    leader = open_log(env, str(tmp_path / "m"), LogConfig(segment_bytes=1 << 20))
    env.make_directory(str(tmp_path / "s" / "log"))
    create_segment(env, str(tmp_path / "s" / "log"), leader.segments.active.header).close()
    store = open_log(env, str(tmp_path / "s"), LogConfig(segment_bytes=1 << 20))
    leader.create_topics([("t", 4)])
    yield leader, store
    leader.close()
    store.close()


@pytest.fixture
def master():
    made = Master()
    yield made
    made.server.close()


@pytest.fixture
def slave(logs):
    return Slave(logs[1])


@pytest.fixture(params=FORMS)
def link(request, master, slave):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = MasterLink(
        slave, "s", ("127.0.0.1", master.server.port), KEY, NodeClock().monotonic_ms,
        is_native=request.param == "native",
    )  # fmt: skip
    turn_until(lambda: slave.group.follows)
    yield made
    made.close()


def batch(queue: int, *bodies: bytes) -> bytes:
    return pack_batch(0, TOPIC, queue, [pack_record(body) for body in bodies])


def ship(master, leader, store, *, change=lambda data: data) -> None:
    """Send what the slave lacks, and wait until it has told that it has all."""
    position = store.end_position
    data = change(leader.raw.read(position, 1 << 20))
    frame = BytesFrame(EPOCH, position, leader.end_position, data)
    master.peers[-1].send_frame(layout.BYTES, layout.UNASKED, layout.OK, [frame.encode()])


def told(master, leader):
    return lambda: bool(master.stored) and master.stored[-1].end == leader.end_position


def test_a_log_that_follows_has_the_masters_bytes_offsets_and_progress(logs, master, slave, link):
    leader, store = logs
    for turn in range(20):
        for queue in range(turn % 4 + 1):
            leader.append(batch(queue, *[os.urandom(turn * 7 + 1)] * (turn % 3 + 1)), 1, NOW + turn)
        if turn % 5 == 4:
            leader.put_progress([(b"group", b"%d" % turn)])
        ship(master, leader, store)
        turn_until(told(master, leader))
    assert slave.group.followed == leader.end_position
    assert leader.segments.active.file.read_at(1 << 20, 0) == store.segments.active.file.read_at(1 << 20, 0)
    assert [store.bounds(TOPIC, queue) for queue in range(4)] == [leader.bounds(TOPIC, queue) for queue in range(4)]
    assert store.read(TOPIC, 0, 0, 100, 1 << 20) == leader.read(TOPIC, 0, 0, 100, 1 << 20)
    assert dict(store.progress()) == dict(leader.progress())
    assert store.epoch == leader.epoch and store.follower.newest_ms >= NOW + 19
    assert slave.group.begins_sync(NodeClock().monotonic_ms() + 200)


def test_bytes_that_do_not_verify_are_refused_and_what_lies_before_them_is_kept(logs, master, slave, link):
    leader, store = logs
    ship(master, leader, store)
    turn_until(told(master, leader))
    leader.append(batch(0, b"whole"), 1, NOW)
    whole = leader.end_position
    leader.append(batch(1, b"damaged"), 1, NOW)
    ship(master, leader, store, change=lambda data: data[:-9] + b"x" + data[-8:])
    turn_until(lambda: len(master.peers) == 2)
    assert store.end_position == whole
    ship(master, leader, store)
    turn_until(told(master, leader))
    assert store.read(TOPIC, 1, 0, 10, 1 << 20) == leader.read(TOPIC, 1, 0, 10, 1 << 20)


def test_frames_after_the_end_of_the_epoch_write_nothing(logs, master, slave, link):
    leader, store = logs
    leader.append(batch(0, b"first"), 1, NOW)
    ship(master, leader, store)
    turn_until(told(master, leader))
    end = store.end_position
    slave.group.unfollow()
    leader.append(batch(0, b"late"), 1, NOW)
    ship(master, leader, store)
    turn_until(lambda: len(master.peers) == 2)
    assert store.end_position == end


def test_a_slave_that_gets_nothing_but_heartbeats_repeats_what_it_has(logs, master, slave, link):
    leader, store = logs
    ship(master, leader, store)
    turn_until(told(master, leader))
    known = len(master.stored)

    def beat() -> bool:
        frame = BytesFrame(EPOCH, store.end_position, store.end_position)
        master.peers[-1].send_frame(layout.BYTES, layout.UNASKED, layout.OK, [frame.encode()])
        return len(master.stored) > known

    turn_until(beat)
