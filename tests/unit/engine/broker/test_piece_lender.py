"""The slaves that a master's cold reads are lent bytes by: which are asked, and what a slave that fails costs."""

import socket
import threading
from types import SimpleNamespace

import pytest

from engine.broker import piece_lender
from engine.broker.host import RepairPeer, lending_slaves
from engine.broker.piece_lender import REST_S, SLOW_S, PieceLender
from engine.client.peer_pieces import PeerPieces
from engine.link.errors import LinkError
from engine.replication.frames import Fetch

EPOCH, LIMIT = 3, 1000


class Links:
    """The links that are made, in the place of PeerPieces.

    Attributes:
        faults: what the next questions raise; None: they are answered.
    """

    def __init__(self) -> None:
        self.made: list[str] = []
        self.asked: list[Fetch] = []
        self.faults: list[Exception | None] = []
        self.open = 0
        self.on_ask = lambda: None

    def __call__(self, address, key, name, timeout_s):
        self.made.append(str(address))
        self.open += 1
        return self

    def ask(self, question: bytes) -> bytes:
        self.asked.append(Fetch.decode(question))
        self.on_ask()
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        return b"bytes"

    def close(self) -> None:
        self.open -= 1

    def shut_down(self) -> None:
        self.faults = [ConnectionError("shut down")] * 9


@pytest.fixture
def links(monkeypatch):
    made = Links()
    monkeypatch.setattr(piece_lender, "PeerPieces", made)
    return made


def slave(name: str, epoch: int = EPOCH, limit: int = LIMIT) -> RepairPeer:
    return RepairPeer(name, f"unix:/{name}", epoch, limit)


class Rig(PieceLender):
    """A lender whose slaves and clock are the test's."""

    def __init__(self, *names: str) -> None:
        self.slaves = [slave(name) for name in names]
        self.now = 100.0
        super().__init__("a", b"key", lambda: self.slaves, 1 << 20, now_s=lambda: self.now)


def test_a_slave_is_asked_over_one_link_in_the_epoch_of_the_moment(links):
    lender = Rig("b")
    assert lender.is_ready
    assert [lender.lend(0, at, 10) for at in (0, 10)] == [b"bytes"] * 2
    lender.slaves = [slave("b", epoch=EPOCH + 1)]
    lender.lend(64, 20, 10)
    assert links.made == ["unix:/b"]
    assert links.asked == [Fetch(0, 0, 10, EPOCH), Fetch(0, 10, 10, EPOCH), Fetch(64, 20, 10, EPOCH + 1)]


def test_nothing_above_the_confirmed_position_is_asked_for(links):
    lender = Rig("b")
    assert lender.lend(LIMIT - 10, 0, 11) == b""
    assert lender.lend(LIMIT - 10, 0, 10) == b"bytes"
    assert [each.size for each in links.asked] == [10]


def test_without_an_in_sync_slave_there_is_nothing_to_lend(links):
    lender = Rig()
    assert not lender.is_ready and lender.lend(0, 0, 10) == b"" and links.made == []


@pytest.mark.parametrize("fault", [LinkError("another epoch"), TimeoutError("timed out")])
def test_a_slave_that_refuses_or_is_late_rests_while_others_are_asked(links, fault):
    lender = Rig("b", "c")
    links.faults = [fault]
    assert lender.lend(0, 0, 10) == b"bytes"
    assert (links.made, links.open) == (["unix:/b", "unix:/c"], 1)
    links.faults = [fault]
    assert lender.lend(0, 0, 10) == b"" and not lender.is_ready
    assert lender.lend(0, 0, 10) == b"" and len(links.made) == 2
    lender.now += REST_S
    assert lender.is_ready and lender.lend(0, 0, 10) == b"bytes"


def test_a_slow_answer_is_taken_and_the_slave_rests(links):
    lender = Rig("b")

    def be_slow() -> None:
        lender.now += SLOW_S + 0.01

    links.on_ask = be_slow
    assert lender.lend(0, 0, 10) == b"bytes"
    assert not lender.is_ready and links.open == 1


def test_a_link_that_was_closed_since_its_last_use_is_made_anew_once(links):
    lender = Rig("b")
    lender.lend(0, 0, 10)
    links.faults = [ConnectionError("closed")]
    assert lender.lend(0, 0, 10) == b"bytes" and lender.is_ready
    links.faults = [ConnectionError("closed"), ConnectionError("closed")]
    assert lender.lend(0, 0, 10) == b"" and not lender.is_ready and links.open == 0


def test_a_lender_that_is_stopped_asks_nothing_any_more(links):
    lender = Rig("b")
    lender.lend(0, 0, 10)
    lender.stop()
    assert lender.lend(0, 0, 10) == b"" and not lender.is_ready
    assert len(links.asked) == 1


def test_a_question_that_is_ended_by_the_stop_is_not_asked_again(links):
    lender = Rig("b")
    lender.lend(0, 0, 10)
    links.on_ask = lender.stop
    assert lender.lend(0, 0, 10) == b""
    assert len(links.made) == 1 and links.open == 0


def test_only_in_sync_slaves_of_a_master_lend():
    group = SimpleNamespace(is_in_sync=lambda name: name == "b")
    broker = SimpleNamespace(group=group, repair_peers=lambda: [slave("b"), slave("c")])
    assert [each.name for each in lending_slaves(broker)] == ["b"]
    broker.group = None
    assert lending_slaves(broker) == []


def test_a_broker_that_does_not_answer_is_late_and_a_wait_for_it_can_be_ended():
    ours, theirs = socket.socketpair()
    pieces = PeerPieces.__new__(PeerPieces)
    pieces._sock, pieces._timeout_s, pieces._asked = ours, 0.05, 0
    with pytest.raises(TimeoutError):
        pieces.ask(Fetch(0, 0, 10).encode())
    pieces._timeout_s = 10.0
    ends: list[Exception] = []

    def wait() -> None:
        try:
            pieces.ask(Fetch(0, 0, 10).encode())
        except OSError as error:
            ends.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    theirs.recv(1000)
    pieces.shut_down()
    waiting.join(5)
    assert not waiting.is_alive() and isinstance(ends[0], ConnectionError)
    for sock in (ours, theirs):
        sock.close()
