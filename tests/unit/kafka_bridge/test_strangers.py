"""UnprovenLinks at the bridge's listener: what they cost, when they are closed, and that proxies get through beside them."""

import json
import select
import socket
import threading
from contextlib import ExitStack, closing

import pytest

from common.contract import Code
from engine.link.codes import INVALID
from engine.link.frame import HEADER, HEADER_SIZE, STRANGER_BYTES_MAX, VERSION, frame
from engine.link.operations import HELLO
from engine.link.proof import KAFKA_BRIDGE_ROLE
from kafka_bridge import link as links
from kafka_bridge import strangers
from tests.unit.kafka_bridge.test_bridge import BridgeDesk, Link
from tests.waiting import until

DEEP = STRANGER_BYTES_MAX - HEADER_SIZE
GREETING = json.dumps({"version": VERSION, "role": KAFKA_BRIDGE_ROLE, "nonce": "00" * 16}).encode()


@pytest.fixture
def desk(tmp_path):
    with closing(BridgeDesk(tmp_path)) as made:
        until(lambda: made.server.links == 1, "the link of a proxy")
        yield made


def connected(desk, stack) -> socket.socket:
    sock = stack.enter_context(socket.socket(socket.AF_UNIX))
    sock.settimeout(10)
    sock.connect(desk.address.host)
    return sock


def answered(sock) -> tuple[int, bytes]:
    size, _, _, code, _, _ = HEADER.unpack(sock.recv(HEADER_SIZE, socket.MSG_WAITALL))
    return code, sock.recv(size + 4 - HEADER_SIZE, socket.MSG_WAITALL)


def is_readable(sock) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


def is_closed(sock) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_a_byte_now_and_then_does_not_prolong_a_greeting(desk, monkeypatch):
    monkeypatch.setattr(strangers, "GREETING_S", 0.2)
    monkeypatch.setattr(strangers, "LOOK_S", 0.01)
    with ExitStack() as stack:
        sock = connected(desk, stack)
        data = frame(HELLO, 1, GREETING)
        until(lambda: drips(sock, data), "the end of the connection", 10.0)
        until(lambda: desk.server.strangers == 0, "the stranger to be forgotten")
    assert desk.link.call(30, b"")[0] == Code.INVALID, "a link with a proof stays for as long as it wants"


def drips(sock, data) -> bool:
    """Send another byte, as a stranger that seems to be slow; whether the connection has ended."""
    sock.settimeout(0.02)
    try:
        sock.send(data[:1])
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_strangers_have_no_threads_and_one_more_than_may_wait_ends_the_oldest(desk, monkeypatch):
    monkeypatch.setattr(strangers, "STRANGERS_MAX", 8)
    with ExitStack() as stack:
        before = threading.active_count()
        socks = [connected(desk, stack) for _ in range(8)]
        until(lambda: desk.server.strangers == 8, "all are accepted")
        assert threading.active_count() == before
        for _ in range(3):
            with closing(Link(desk.address).sock):
                pass  # a proxy is served, and is a stranger no more
        assert is_closed(socks[0])
        until(lambda: desk.server.strangers == 7, "the places of proxies to be free")
        assert not any(is_readable(each) for each in socks[1:])


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([frame(HELLO, 1, GREETING), frame(HELLO, 2, GREETING)], "a link has one HELLO and one AUTH"),
        ([frame(HELLO, 1, b"[" * DEEP)], "send a JSON object"),
        ([frame(HELLO, 1, b"\xff")], "send a JSON object"),
    ],
)
def test_what_is_no_greeting_is_answered_with_one_sentence_and_closed(desk, caplog, frames, told):
    with ExitStack() as stack:
        sock = connected(desk, stack)
        for number, each in enumerate(frames):
            sock.sendall(each)
            code, answer = answered(sock)
            if number == len(frames) - 1:
                assert code == INVALID and told in answer.decode()
        assert is_closed(sock)
    until(lambda: desk.server.strangers == 0, "the stranger to be forgotten")
    assert not any(each.exc_info for each in caplog.records), "a stranger does not make a traceback"


@pytest.mark.parametrize("size", [0, STRANGER_BYTES_MAX + 1])
def test_a_frame_that_no_stranger_may_send_ends_the_connection(desk, size):
    with ExitStack() as stack:
        sock = connected(desk, stack)
        sock.sendall(HEADER.pack(size, HELLO, 0, 0, 1, 0))
        assert is_closed(sock)


def test_a_proxy_that_does_not_read_its_answers_is_closed_at_a_bound(desk, monkeypatch):
    monkeypatch.setattr(links, "ANSWER_BYTES_MAX", 100_000)
    until(lambda: asks_until_closed(desk.link), "the end of the link", 20.0)
    until(lambda: desk.server.links == 0, "the link to be forgotten")


def asks_until_closed(link) -> bool:
    link.sock.settimeout(0.2)
    try:
        for _ in range(1_000):
            link.send(31, b"")
    except TimeoutError:
        return False
    except OSError:
        return True
    return False
