"""The links of slaves that a master serves: which one is a slave's, and that each slave that follows has one."""

from types import SimpleNamespace

import pytest

from engine.broker.group_ops import FETCH_BYTES_MAX, GroupOps
from engine.broker.piece_reads import WINDOWS_MAX, PieceReads
from engine.env.simulated import SimulatedEnv
from engine.errors import PositionGoneError
from engine.link import layout
from engine.link.proof import REPLICA_ROLE
from engine.ops.errors import RequestError
from engine.replication.following import StaleEpochError
from engine.replication.frames import Fetch, Follow, Followed

EPOCH = 2
SEGMENT = "/data/log/0.seg"
MIB = 1 << 20
ASKED = Follow(EPOCH, 5, 64).encode()


class FakePeer:
    def __init__(self) -> None:
        self.peer_state = SimpleNamespace(role=REPLICA_ROLE, name="b", on_stored=None)
        self.closed: list[str] = []
        self.sent: list[tuple[int, int]] = []
        self.backlog = 0

    def send_frame(self, op, request_id, code, parts):
        self.sent.append((op, code))
        self.parts = parts

    def close(self, reason):
        self.closed.append(reason)


class FakeMaster:
    """The broker, its group and its turns."""

    def __init__(self) -> None:
        self.group = self.turns = self
        self.shipments: dict[str, str] = {}
        self.fault: Exception | None = None
        self.epoch, self.raw = EPOCH, self

    def path_of(self, base):
        if base:
            raise PositionGoneError("it is deleted")
        return SEGMENT

    def follow(self, slave, asked, now_ms):
        if self.fault is not None:
            raise self.fault
        self.shipments[slave] = "new"
        return Followed(EPOCH, 64, 64, 0, 0)

    def left(self, slave, now_ms):
        self.shipments.pop(slave, None)

    def stored(self, name, peer, epoch, end, synced): ...

    def follows(self, name): ...


@pytest.fixture
def master():
    return FakeMaster()


@pytest.fixture
def env():
    return SimulatedEnv()


@pytest.fixture
def ops(master, env):
    return GroupOps(master, lambda: 0, PieceReads(env, lambda call: call()))


def follow(ops, peer):
    ops.handlers()[layout.FOLLOW](peer, 1, ASKED)


def test_the_newest_link_of_a_slave_is_the_one_that_follows(master, ops):
    first, second = FakePeer(), FakePeer()
    follow(ops, first)
    follow(ops, second)
    assert ops.slaves == {"b": second} and first.closed and not second.closed
    ops.on_closed(first)
    assert ops.slaves.keys() == master.shipments.keys() == {"b"}
    ops.on_closed(second)
    assert not ops.slaves and not master.shipments


@pytest.mark.parametrize(
    ("fault", "raised"),
    [(StaleEpochError("another epoch"), StaleEpochError), (OSError(5, "the disk cannot read"), RequestError)],
    ids=["epoch", "disk"],
)
def test_a_slave_whose_next_link_is_refused_does_not_follow_over_the_one_before(master, ops, fault, raised):
    first, second = FakePeer(), FakePeer()
    follow(ops, first)
    master.fault = fault
    with pytest.raises(raised):
        follow(ops, second)
    ops.on_closed(first)
    assert not ops.slaves and not master.shipments, "a turn would look for the link of a slave that has none"


@pytest.fixture
def segment(env):
    file = env.open(SEGMENT, create=True)
    file.write_at(bytes(range(256)) * (MIB * 12 // 256), 0)
    return file


def bad_sector_in_windows(size: int) -> None:
    if size == MIB:
        raise OSError(5, "simulated")


def fetch(ops, peer, *asked) -> None:
    ops.handlers()[layout.FETCH](peer, 1, Fetch(*asked).encode())


def test_a_piece_is_read_in_the_thread_and_a_window_from_the_disk_at_once(ops, env, segment):
    tasks, calls, peer = [], [], FakePeer()
    env.on_call = lambda operation, _, at, size: calls.append((operation, at, size))
    ops.pieces._background = SimpleNamespace(submit=tasks.append)
    fetch(ops, peer, 0, MIB + 7, 5, EPOCH)
    assert peer.sent == calls == [], "the loop does not wait for the disk"
    tasks.pop()()
    assert peer.sent == [(layout.FETCH, layout.OK)] and peer.parts == [bytes(range(7, 12))]
    assert calls[1:] == [("read", MIB, MIB), ("read", MIB + 7, 5)]
    assert ops.pieces.bytes_read == 5
    fetch(ops, peer, 0, 0, MIB, EPOCH)
    tasks.pop()()
    assert len(peer.parts[0]) == FETCH_BYTES_MAX


def test_few_windows_of_pieces_stay_in_the_page_cache(ops, env, segment):
    peer = FakePeer()
    for number in range(WINDOWS_MAX + 3):
        fetch(ops, peer, 0, number * MIB, 10, EPOCH)
    assert env.forgotten == [(SEGMENT, number * MIB, MIB) for number in range(3)]
    env.forgotten.clear()
    env.in_memory = True
    fetch(ops, peer, 0, 11 * MIB, 10)
    assert env.forgotten == [], "what others have brought there is not dropped"


def test_a_piece_of_another_epoch_a_deleted_segment_or_an_unreadable_disk_is_refused(master, ops, env, segment):
    tasks, peer = [], FakePeer()
    for asked, code in (((0, 0, 5, EPOCH + 1), layout.STALE_EPOCH), ((64, 0, 5, EPOCH), layout.UNAVAILABLE)):
        with pytest.raises(RequestError) as refused:
            fetch(ops, peer, *asked)
        assert refused.value.code == code
    env.fail("read", 5)
    fetch(ops, peer, 0, 0, 5, EPOCH)
    assert peer.sent.pop() == (layout.FETCH, layout.UNAVAILABLE)
    env.heal()
    env.on_call = lambda operation, path, at, size: bad_sector_in_windows(size)
    fetch(ops, peer, 0, 0, 5, EPOCH)
    assert peer.sent.pop() == (layout.FETCH, layout.OK), "the piece itself can be read"
    env.on_call = None
    ops.pieces._background = SimpleNamespace(submit=tasks.append)
    fetch(ops, peer, 0, 0, 5, EPOCH)
    master.epoch += 1
    tasks.pop()()
    assert peer.sent.pop() == (layout.FETCH, layout.STALE_EPOCH)
