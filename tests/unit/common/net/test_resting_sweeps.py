"""Deadlines of native connections are checked while there are any, and not otherwise."""

import socket

import pytest

import common.net as net
from common.net import Limits
from tests.services.fake_broker import wait_until
from tests.unit.common.net.test_connections import LIMITS, client, echo, is_closed, serve

__all__ = ["serve"]  # fixture
PROTOCOL_LINK = 3

pytestmark = pytest.mark.skipif(not net.NATIVE, reason="the reference has a timer per connection")


def sweeps() -> bool:
    from common.net._reactor import reactor

    return reactor().sweeps


def link(limits: Limits):
    """(a connection with the framing of the engine's link, its peer's socket)."""
    from common.net._connection import Connection

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return Connection(ours.detach(), limits, "peer", PROTOCOL_LINK), theirs


def test_an_idle_link_has_no_deadline_and_one_whose_peer_does_not_read_has():
    connection, theirs = link(Limits(write_deadline_s=0.3, write_rate_min=1_000_000))
    wait_until(lambda: not sweeps())
    assert not connection.closed
    connection.send(bytes(4 << 20))
    wait_until(sweeps)
    wait_until(lambda: connection.closed)
    wait_until(lambda: not sweeps())
    theirs.close()


@pytest.mark.parametrize("serve", ["native"], indirect=True)
def test_a_client_that_comes_after_a_rest_is_closed_by_its_deadline(serve):
    wait_until(lambda: not sweeps())
    server = serve(echo, LIMITS)
    sock = client(server)
    wait_until(sweeps)
    assert is_closed(sock)
    wait_until(lambda: not sweeps())
