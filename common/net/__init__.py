"""Listeners and connections: TCP, TLS, framing, limits. Native where it was built, else the twin; NATIVE says which."""

import os

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("twins asked for")
    from common.net import _reactor as _native  # type: ignore[attr-defined]

    NATIVE = True
except ImportError:
    NATIVE = False

from common.net.limits import Limits
from common.net.server import Server, listen

__all__ = ["NATIVE", "Limits", "Server", "listen", "serve"]


def serve(listeners, limits, on_call, *, prefix_check=None, make_connection=None) -> Server:
    """Serve Thrift calls on listening sockets.

    Args:
        listeners: (socket, ssl_context or None) pairs; sockets from `listen()`.
        limits: Limits.
        on_call: called as (connection, frame bytes) in a loop callback, where it must not block; answers by `connection.reply`.
        prefix_check: (connection, first 64 KiB of a long frame) -> bool, asked once for a stranger's long frame; unset: it is closed.
        make_connection: (socket, peer, ssl_context) -> connection, for a native hot path in place of `on_call`.
    """
    if make_connection is None:
        make_connection = _factory(limits, on_call, prefix_check)
    return Server(listeners, limits, make_connection)


def _factory(limits, on_call, prefix_check):
    if NATIVE:
        return lambda sock, peer, tls: _native.CallConnection(sock.detach(), limits, peer, tls, on_call, prefix_check)
    from common.net.connection import CallConnection

    return lambda sock, peer, tls: CallConnection(sock, limits, peer, tls, on_call, prefix_check)
