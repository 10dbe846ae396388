"""The links of slaves that a master serves: which one is a slave's, and that each slave that follows has one."""

from types import SimpleNamespace

import pytest

from engine.broker.group_ops import GroupOps
from engine.link import layout
from engine.link.proof import REPLICA_ROLE
from engine.ops.errors import RequestError
from engine.replication.following import StaleEpochError
from engine.replication.frames import Follow, Followed

EPOCH = 2
ASKED = Follow(EPOCH, 5, 64).encode()


class FakePeer:
    def __init__(self) -> None:
        self.peer_state = SimpleNamespace(role=REPLICA_ROLE, name="b", on_stored=None)
        self.closed: list[str] = []
        self.sent: list[tuple[int, int]] = []

    def send_frame(self, op, request_id, code, parts):
        self.sent.append((op, code))

    def close(self, reason):
        self.closed.append(reason)


class FakeMaster:
    """The broker, its group and its turns."""

    def __init__(self) -> None:
        self.group = self.turns = self
        self.shipments: dict[str, str] = {}
        self.fault: Exception | None = None

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
def ops(master):
    return GroupOps(master, lambda: 0)


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
