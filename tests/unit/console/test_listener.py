"""The console's server among peers that are slow, silent or not signed in."""

import logging
import socket
import threading
import time

import pytest
from waitress import wasyncore
from waitress.channel import ClientDisconnected

from console.security import listener
from tests.waiting import until


def pages(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/stream":
        return (bytes(65_536) for _ in range(4_096))
    return [b"%d" % len(body)]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 40)
    monkeypatch.setattr(listener, "WAIT_S", 0.5)
    monkeypatch.setattr(listener, "CHECK_S", 0.1)
    made = listener.page_server(pages, "127.0.0.1", 0, 2, 2 << 20, "")
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    yield made
    made.task_dispatcher.shutdown()
    made.trigger.pull_trigger(lambda: wasyncore.close_all(made._map))  # in its own thread, whose loop it ends
    thread.join(5)


def connect(server, receive_bytes=0):
    sock = socket.socket()
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.settimeout(5)
    sock.connect(("127.0.0.1", int(server.effective_port)))
    return sock


def ask(server, body=b"", headers=b""):
    with connect(server) as sock:
        sock.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n" % (headers, len(body))
        )
        try:
            sock.sendall(body)
        except OSError:
            pass  # it was refused by its head
        data = b""
        try:
            while chunk := sock.recv(65_536):
                data += chunk
        except ConnectionResetError:
            pass
    return data


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nX: "])
def test_slow_connections_take_no_place_from_others(server, start, monkeypatch):
    monkeypatch.setattr(listener, "WAIT_S", 60)
    crowd = [connect(server) for _ in range(100)]
    for each in crowd:
        each.sendall(start)
    for _ in range(5):
        assert ask(server).startswith(b"HTTP/1.1 200")
    assert len(server.active_channels) <= 40
    for each in crowd:
        each.close()


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\nX: ", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n", b""]
)
def test_a_request_has_one_deadline_whatever_drips(server, start):
    with connect(server) as sock:
        sock.sendall(start)
        sock.settimeout(0.05)
        began = time.monotonic()
        while time.monotonic() - began < 5:
            try:
                if start:
                    sock.send(b"a")
                if sock.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - began < 4


def test_a_body_without_a_session_is_small_and_refused_by_its_head_or_as_it_comes(server):
    assert ask(server, bytes(60_000)).endswith(b"60000")
    assert b" 413 " in ask(server, bytes(70_000)).splitlines()[0]
    assert ask(server, bytes(200_000), b"Cookie: penstock=x\r\n").endswith(b"200000")
    assert ask(server, bytes(200_000), b"Authorization: Bearer x\r\n").endswith(b"200000")
    with connect(server) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(10):
                sock.sendall(b"4000\r\n" + bytes(0x4000) + b"\r\n")
                time.sleep(0.01)
            assert b" 413 " in sock.recv(100)
        except ConnectionError:
            pass


@pytest.mark.parametrize("request_bytes", [b"GET / HTTP/1.1\r\n\r\n", b"GET /\x00\xff HTTP/1.1\r\nA\x00: b\r\n\r\n"])
def test_a_client_that_leaves_before_its_answer_is_no_error(server, monkeypatch, caplog, request_bytes):
    def left(connection, data):
        raise ClientDisconnected

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(listener.PageConnection, "write_soon", left)
    with connect(server) as sock:
        sock.sendall(request_bytes)
        until(lambda: caplog.records, "it is told")
        until(lambda: not any(each.requests for each in server.active_channels.values()), "nothing is kept of it")
    assert [each.levelname for each in caplog.records] == ["INFO"]


def test_a_stream_whose_reader_takes_nothing_ends_and_frees_its_thread(server):
    with connect(server, receive_bytes=4_096) as first, connect(server, receive_bytes=4_096) as second:
        for each in (first, second):
            each.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: len(server.active_channels) == 2, "both are served")
        assert ask(server).startswith(b"HTTP/1.1 200"), "their threads are free again"
        until(lambda: not server.active_channels, "they are closed")
