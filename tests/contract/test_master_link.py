"""A slave's link to its master over real sockets: both forms of the link, against a played master and a played log."""

import os

import pytest

from engine.broker.master_link import NATIVE, MasterLink
from engine.broker.standby import Standby
from engine.env.native import NodeClock
from engine.errors import LogError
from engine.link import layout
from engine.ops.roles import LinkKeys
from engine.replication.follow import FollowStep
from engine.replication.frames import BytesFrame, Follow, Followed, StoredFrame, SyncFrame
from engine.server.native import reference
from engine.server.server import LinkServer
from tests.contract.link_engine import turn_until

KEY = b"k" * 32
EPOCH = 3
START = 64
FORMS = ["native", "reference"]


class Slave:
    """A broker whose log is a list of what came, and its group. One name of what `MasterSession` calls is one method."""

    following = None

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.end = self.told_end = START
        self.fault: Exception | None = None
        self.asks = self.unfollowed = 0
        self.synced_calls: list = []

    @property
    def group(self) -> "Slave":
        return self

    def ask(self) -> Follow:
        self.asks += 1
        return Follow(EPOCH, 1, self.end)

    def answered(self, answer: Followed, now_ms: int) -> FollowStep:
        return FollowStep.FOLLOW

    def take(self, frame: BytesFrame, now_ms: int) -> None:
        if self.fault is not None:
            raise self.fault
        assert frame.position == self.end
        self.taken.append(frame.data)
        self.end += len(frame.data)

    def tell(self, now_ms: int) -> StoredFrame | None:
        if self.end == self.told_end:
            return None
        self.told_end = self.end
        return StoredFrame(EPOCH, self.end, START)

    def unfollow(self) -> None:
        self.unfollowed += 1

    def sync_soon(self, on_synced) -> None:
        self.synced_calls.append(on_synced)

    def told(self) -> None: ...


class Master:
    """A real server of links that answers FOLLOW, with `behind` sent right after the answer."""

    def __init__(self) -> None:
        self.stored: list[StoredFrame] = []
        self.behind: list[bytes] = []
        self.peers: list = []
        handlers = {layout.FOLLOW: self._follow, layout.STORED: self._stored}
        identity = {"log_id": "a" * 32, "broker_group": "g", "leads": True, "broker": "m", "master": "m", "term": EPOCH}
        standby = Standby(
            LinkKeys(KEY),
            NodeClock(),
            os.urandom,
            lambda: identity,
            handlers,
            lambda: "no",
            lambda peer: None,
            lambda: 0,
        )
        self.server = LinkServer(standby, "127.0.0.1", 0, form=reference)

    def _follow(self, peer, request_id: int, payload: bytes) -> None:
        self.peers.append(peer)
        position = Follow.decode(payload).end
        peer.send_frame(layout.FOLLOW, request_id, layout.OK, [Followed(EPOCH, position, START, 0, 0).encode()])
        for data in self.behind:
            self.send(position, data)
            position += len(data)

    def _stored(self, peer, request_id: int, payload: bytes) -> None:
        self.stored.append(StoredFrame.decode(payload))

    def send(self, position: int, data: bytes) -> None:
        frame = BytesFrame(EPOCH, position, position, data)
        self.peers[-1].send_frame(layout.BYTES, layout.UNASKED, layout.OK, [frame.encode()])

    def send_sync(self, position: int) -> None:
        self.peers[-1].send_frame(layout.SYNC, layout.UNASKED, layout.OK, [SyncFrame(EPOCH, position).encode()])


@pytest.fixture
def master():
    made = Master()
    yield made
    made.server.close()


@pytest.fixture
def slave():
    return Slave()


@pytest.fixture(params=FORMS)
def link(request, master, slave):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = MasterLink(
        slave, "s", ("127.0.0.1", master.server.port), KEY, NodeClock().monotonic_ms,
        is_native=request.param == "native",
    )  # fmt: skip
    yield made
    made.close()


def test_frames_right_behind_the_answer_are_taken_in_order_and_told(master, slave, link):
    master.behind = [b"a" * 8, b"b" * 16, b"c" * 24]
    turn_until(lambda: len(slave.taken) == 3)
    assert slave.taken == master.behind
    turn_until(lambda: master.stored and master.stored[-1].end == START + 48)


def test_frames_of_many_sizes_arrive_whole_also_when_the_socket_splits_them(master, slave, link):
    turn_until(lambda: master.peers)
    wanted = [os.urandom(size) for size in (8, 65536, 256 << 10, 8, 1 << 20, 4096)]
    for data in wanted:
        master.send(START + sum(map(len, wanted[: wanted.index(data)])), data)
    turn_until(lambda: len(slave.taken) == len(wanted))
    assert slave.taken == wanted
    turn_until(lambda: master.stored and master.stored[-1].end == slave.end)


@pytest.mark.parametrize("fault", [LogError("the disk is full"), KeyError("a defect")], ids=["refusal", "defect"])
def test_a_frame_that_the_log_does_not_take_ends_the_link_and_another_one_asks_again(master, slave, link, fault):
    turn_until(lambda: master.peers)
    slave.fault = fault
    master.send(START, b"x" * 8)
    turn_until(lambda: slave.unfollowed)
    slave.fault = None
    turn_until(lambda: len(master.peers) == 2)
    master.send(START, b"y" * 8)
    turn_until(lambda: slave.taken == [b"y" * 8])


def test_a_master_that_falls_silent_is_left(master, slave, link):
    turn_until(lambda: master.peers)
    master.send(START, b"x" * 8)
    turn_until(lambda: slave.taken)
    turn_until(lambda: len(master.peers) == 2)  # within some DIAL_S of silence
    assert slave.unfollowed


def test_a_sync_that_is_done_between_two_frames_is_told_at_once(master, slave, link):
    turn_until(lambda: master.peers)
    master.send(START, b"x" * 8)
    turn_until(lambda: master.stored)
    master.send_sync(START + 8)
    turn_until(lambda: slave.synced_calls)
    slave.told_end = START  # there is news
    slave.synced_calls.pop()()
    turn_until(lambda: len(master.stored) == 2)


def test_a_frame_of_another_operation_ends_the_link(master, slave, link):
    turn_until(lambda: master.peers)
    master.peers[-1].send_frame(layout.PULL, layout.UNASKED, layout.OK, [b""])
    turn_until(lambda: len(master.peers) == 2)


def test_a_link_that_is_closed_does_not_dial_again(master, slave, link):
    turn_until(lambda: master.peers)
    link.close()
    turn_until(lambda: not master.server.connections)
    turn_until(lambda: link._greenlet.dead)
    assert len(master.peers) == 1
