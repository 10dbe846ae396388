"""Held output of native connections: bytes leave up to the released position, with TLS and without."""

import gevent
import pytest

import common.net as net
from common.net import Limits
from common.net.tls import server_context
from tests.unit.common.net.test_connections import TlsClient, call, certificate, client, framed, read_exactly, serve

__all__ = ["certificate", "serve"]  # fixtures
ANSWER = bytes(range(256)) * 4_000
WIRE = framed(ANSWER)

pytestmark = [
    pytest.mark.skipif(not net.NATIVE, reason="only native connections hold output"),
    pytest.mark.parametrize("serve", ["native"], indirect=True),
]


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def held(request, serve, certificate):
    """A connection whose output is held, with a whole answer in it, and a function that reads at the other end."""
    connections = []

    def on_call(connection, frame):
        if not connections:
            connection.hold_output()
        connections.append(connection)
        connection.reply(ANSWER)

    server = serve(on_call, Limits(), server_context(*certificate) if request.param else None)
    sock = TlsClient(server, certificate[0]) if request.param else client(server)
    send = sock.send if request.param else sock.sendall
    send(framed(call()))
    turn_until(lambda: connections)
    read = sock.read if request.param else lambda size: read_exactly(sock, size)
    return connections[0], send, read


def turn_until(condition) -> None:
    with gevent.Timeout(5):
        while not condition():
            gevent.sleep(0.001)


def test_bytes_leave_up_to_the_released_position_and_no_further(held):
    connection, _, read = held
    assert (connection.queued, connection.left) == (len(WIRE), 0)
    at = 0
    for position in (1, 100_000, 100_001, 700_000, len(WIRE)):
        connection.release(position)
        assert read(position - at) == WIRE[at:position]
        at = position
        turn_until(lambda end=at: connection.left >= end)
        assert (connection.left, connection.backlog) == (at, len(WIRE) - at)


def test_a_release_never_falls_and_frees_nothing_that_comes_later(held):
    connection, send, read = held
    connection.release(200)
    connection.release(100)
    connection.release(1 << 40)
    assert read(len(WIRE)) == WIRE
    send(framed(call()))
    turn_until(lambda: connection.queued == 2 * len(WIRE))
    turn_until(lambda: connection.left == len(WIRE))
    assert connection.backlog == len(WIRE)
    connection.release(connection.queued)
    assert read(len(WIRE)) == WIRE


def test_calls_are_answered_while_the_output_is_held(held):
    connection, send, read = held
    send(framed(call()) * 3)
    turn_until(lambda: connection.queued == 4 * len(WIRE))
    assert connection.left == 0
    connection.release(connection.queued)
    assert read(4 * len(WIRE)) == WIRE * 4


def test_held_bytes_of_a_closed_connection_have_not_left(held):
    connection, _, read = held
    connection.release(1_000)
    assert read(1_000) == WIRE[:1_000]
    turn_until(lambda: connection.left == 1_000)
    connection.close("the test ends it")
    assert connection.unsent
    assert connection.left <= 1_000 and connection.left + connection.backlog == len(WIRE)
    connection.release(len(WIRE))


def test_a_connection_that_is_to_close_waits_for_its_held_bytes(held):
    connection, _, read = held
    connection.close_when_sent()
    connection.release(10)
    assert read(10) == WIRE[:10]
    turn_until(lambda: connection.left == 10)
    assert not connection.closed
    connection.release(len(WIRE))
    assert read(len(WIRE) - 10) == WIRE[10:]
    turn_until(lambda: connection.closed)
    assert not connection.unsent
