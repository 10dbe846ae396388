"""The operators' port among peers that are silent, slow or reset their connections."""

import logging
import socket
import struct
import subprocess
import sys

import gevent
import pytest
from gevent import socket as gsocket
from prometheus_client import CollectorRegistry

from common.limited_log import LimitedLog
from common.ops import listener, start_ops
from tests.unit.common.ops.test_ops import fetch
from tests.waiting import until

LARGE = 4 << 20
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
def port():
    server = start_ops("127.0.0.1", 0, CollectorRegistry(), dict, {"/large": lambda request: ("200 OK", "x" * LARGE)})
    yield server.port
    server.stop()


def connect(port):
    sock = gsocket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # so that a large answer does not fit into the kernel
    sock.settimeout(5)
    sock.connect(("127.0.0.1", port))
    return sock


def is_open(sock):
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@pytest.mark.parametrize("start", [b"", REQUEST + b"X: ", b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_health_check_finds_a_place_among_peers_that_only_hold_theirs(port, start):
    crowd = [connect(port) for _ in range(listener.CONNECTIONS_MAX + 10)]
    for each in crowd:
        each.sendall(start)
    gevent.sleep(0.01)
    for _ in range(3):
        assert fetch(port, "/healthz")[0] == 200
    if b"large" not in start:
        until(
            lambda: gevent.sleep(0.01) or sum(map(is_open, crowd)) <= listener.CONNECTIONS_MAX, "the others were closed"
        )


@pytest.mark.parametrize(
    "start", [b"", REQUEST + b"X: ", b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"]
)
def test_a_request_has_to_come_in_time_whatever_drips(port, start, monkeypatch):
    monkeypatch.setattr(listener, "DEADLINE_S", 0.3)
    sock = connect(port)
    sock.sendall(start)
    with gevent.Timeout(5):
        while is_open(sock):
            gevent.sleep(0.05)
            if start:
                try:
                    sock.send(b"x")
                except OSError:
                    break


def test_an_answer_has_to_be_taken_in_time(port, monkeypatch, caplog):
    monkeypatch.setattr(listener, "DEADLINE_S", 0.3)
    sock = connect(port)
    sock.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    gevent.sleep(0.8)
    sock.settimeout(5)
    taken = 0
    try:
        while chunk := sock.recv(1 << 20):
            taken += len(chunk)
    except ConnectionError:
        pass
    assert taken < LARGE and not caplog.records


@pytest.mark.parametrize("body", [b"Content-Length: 2000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\n"])
def test_a_large_or_chunked_body_is_refused_and_not_read(port, body):
    sock = connect(port)
    sock.sendall(b"POST /healthz HTTP/1.1\r\nHost: x\r\n" + body)
    assert sock.recv(100).startswith(b"HTTP/1.1 400")


def test_connections_that_are_reset_write_nothing(port, capfd, caplog):
    LimitedLog.kinds.clear()
    for start in (b"", REQUEST, REQUEST + b"\r\n", b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n") * 20:
        sock = connect(port)
        sock.sendall(start)
        gevent.sleep(0.001)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    assert fetch(port, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""
    assert not [each for each in caplog.records if each.levelno > logging.INFO]


PROGRAM = """
from gevent import monkey
monkey.patch_all()
import sys, threading, gevent
from common.ops import setup_logging
setup_logging("test")
def fail(): raise ValueError("line one\\nline two")
for _ in range(50):
    gevent.spawn(fail)
    gevent.get_hub().loop.run_callback(fail)
gevent.sleep(0.05)
for _ in range(50):
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
class Unraisable:
    def __del__(self): fail()
for _ in range(50):
    Unraisable()
"""


def test_what_nothing_has_caught_is_a_limited_log_line():
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True
    ).stderr
    lines = [line for line in said.splitlines() if not line.startswith("  ")]
    assert all(" ERROR test: " in line for line in lines), said
    assert 2 <= len(lines) <= 4 and said.count("Traceback") == len(lines)
