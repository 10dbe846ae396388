"""Flow control of the link: both forms of the server against both forms of the client's transport."""

import socket

import gevent
import pytest

from common.net import limits
from engine.client import rpc as rpc_module
from engine.client import transport as transport_reference
from engine.client.rpc import RpcClient
from engine.delivery.reply_window import RESERVE_BYTES
from engine.link import layout
from engine.link.codes import NO_ROOM
from engine.link.errors import PayloadError
from engine.link.integers import U64
from engine.link.pull import decode_answer, encode_pull
from engine.link.topic import encode_topics
from engine.server import serve
from engine.server.native import NATIVE
from tests import link_bytes as raw
from tests.contract.link_engine import FORMS, KEY, Engine, turn_until

MIB = 1 << 20


@pytest.fixture(params=FORMS)
def engine(request, tmp_path):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = Engine(tmp_path / "engine", request.param, segment_bytes=64 << 20)
    yield made
    made.close()


def large_messages(engine, count: int) -> None:
    topic = engine.topic("large", 1)
    for _ in range(count):
        code, _ = engine.ask(layout.APPEND, raw.append(raw.MEMORY, raw.batch(topic, 0, [bytes(MIB)])))
        assert code == 0


def ask_pulls(link, count: int) -> None:
    for number in range(count):
        options = {"max_messages": 1, "max_bytes": 12 << 20, "wait_ms": 20_000}
        link.send(layout.PULL, encode_pull("g", [("large", 1)], **options), request_id=number + 1)


def received(link, least: int) -> int:
    """Number of answers that come, once at least this many have come and no further one is on its way."""
    found = 0
    with gevent.Timeout(0.3, False):
        while True:
            link.receive()
            found += 1
    assert found >= least
    return found


def test_an_engine_sends_no_more_than_the_window_and_goes_on_when_it_is_raised(engine):
    large_messages(engine, 8)
    link = engine.raw()
    link.send(layout.WINDOW, U64.pack(RESERVE_BYTES + 2 * MIB + MIB // 2), request_id=0)
    ask_pulls(link, 6)
    turn_until(lambda: sum(len(peer.peer_state.window.waiting) for peer in engine.node.peers) == 4)
    assert received(link, 2) == 2 and engine.delivery.counts.deliveries == 2
    link.send(layout.WINDOW, U64.pack(RESERVE_BYTES + 20 * MIB), request_id=0)
    assert received(link, 4) == 4


def test_a_link_that_is_not_read_gets_a_bounded_output_and_a_small_answer_is_not_behind_large_ones(engine):
    large_messages(engine, 40)
    engine.store(engine.topic("small", 1), 1)
    link = engine.raw()
    link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    ask_pulls(link, 40)
    turn_until(lambda: any(peer.peer_state.window.is_full for peer in engine.node.peers))
    link.send(layout.PULL, encode_pull("other", [("small", 1)]), request_id=100)
    turn_until(lambda: "other" in engine.delivery.groups)
    assert engine.delivery.counts.deliveries < 20
    order = []
    with gevent.Timeout(10):
        while len(order) < 41:
            order.append(link.receive()[2])
    assert order.index(100) < 20


def test_a_link_that_asks_for_more_than_it_reads_is_closed_at_a_bound(engine, monkeypatch):
    for module in (limits, serve):
        monkeypatch.setattr(module, "UNREAD_BYTES_MAX", 2 * MIB)
    question = encode_topics([(f"topic-{number}", 1) for number in range(1_000)])
    code, answer = engine.ask(layout.TOPIC, question)
    assert code == 0
    link = engine.raw()
    link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    asked = 0
    with gevent.Timeout(30), pytest.raises(ConnectionError):
        for asked in range(2_000):
            link.send(layout.TOPIC, question, request_id=asked + 1)
            gevent.sleep(0)
    assert asked > 2 * MIB // len(answer)
    assert engine.ask(layout.TOPIC, question)[0] == 0


def test_waiting_pulls_of_a_link_that_closes_are_forgotten(engine):
    large_messages(engine, 2)
    link = engine.raw()
    link.send(layout.WINDOW, U64.pack(100_000), request_id=0)
    ask_pulls(link, 2)
    turn_until(lambda: engine.delivery.parked == 2)
    link.sock.close()
    turn_until(lambda: engine.delivery.parked == 0)
    assert engine.delivery.counts.deliveries == 0


def test_a_window_of_other_bytes_is_refused_and_the_link_goes_on(engine):
    link = engine.raw()
    link.send(layout.WINDOW, b"123", request_id=7)
    assert link.receive()[1:3] == (layout.INVALID, 7)
    assert link.ask(layout.TOPIC, b'{"topics":[]}')[0] == 0


@pytest.mark.parametrize("kind", FORMS)
def test_a_client_raises_its_window_as_answers_come_while_none_of_them_waits(engine, kind, monkeypatch):
    """Sixty answers of a MiB through a window of sixteen."""
    if kind == "twin":
        monkeypatch.setattr(rpc_module, "Transport", transport_reference.Transport)
    large_messages(engine, 10)
    rpc = RpcClient(("127.0.0.1", engine.server.port), KEY, role="test")
    rpc.share_window(16 * MIB, 2)
    assert rpc.wait_connected(5)
    for number in range(60):
        code, payload = rpc.call(layout.PULL, encode_pull(f"g{number % 20}", [("large", 1)], max_messages=1), 5)
        assert (code, len(decode_answer(payload)[1])) == (0, 1)
    (window,) = [peer.peer_state.window for peer in engine.node.peers if peer.peer_state.window.sent > 50 * MIB]
    assert 60 * MIB < window.sent < window.limit <= window.sent + 8 * MIB
    rpc.close()


def test_messages_that_the_output_still_holds_when_a_link_breaks_were_no_attempt(engine):
    large_messages(engine, 40)
    link = engine.raw()
    link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    ask_pulls(link, 40)
    turn_until(lambda: any(peer.peer_state.window.is_full for peer in engine.node.peers))
    counts = engine.delivery.counts
    handed_out = counts.deliveries
    link.sock.close()
    turn_until(lambda: len(engine.node.peers) == 1)
    assert 0 < counts.released <= handed_out
    topics = [("large", 1)]
    attempts = []
    while len(attempts) < counts.released:
        answer = decode_answer(engine.ask(layout.PULL, encode_pull("g", topics, max_messages=1, max_bytes=12 << 20))[1])
        attempts += [piece.attempt for piece in answer[1]]
    assert set(attempts) == {1}
    assert sum(len(peer.peer_state.unread) for peer in engine.node.peers) <= 1


def test_a_pull_that_finds_no_room_until_its_time_is_over_does_not_look_like_an_empty_queue(engine):
    large_messages(engine, 1)
    link = engine.raw()
    link.send(layout.WINDOW, U64.pack(RESERVE_BYTES), request_id=0)
    options = {"max_messages": 1, "max_bytes": 12 << 20, "wait_ms": 50}
    for group, topic, code in (("g", "large", NO_ROOM), ("g", "none", layout.OK)):
        assert link.ask(layout.PULL, encode_pull(group, [(topic, 1)], **options))[0] == code


def test_an_answer_that_cannot_be_decoded_is_one_line_and_ends_its_call(engine, caplog):
    told = []

    def callback(code, payload):
        told.append(code)
        if code == layout.OK:
            raise PayloadError("cut off")

    engine.rpc.send(layout.PULL, encode_pull("g", [("large", 1)], max_messages=0), callback)
    turn_until(lambda: len(told) == 2)
    assert told == [layout.OK, layout.UNAVAILABLE]
    (line,) = [each for each in caplog.records if "damaged answer: cut off" in each.getMessage()]
    assert not line.exc_info
