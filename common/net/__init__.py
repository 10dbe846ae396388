"""Listeners and connections: TCP, TLS, framing, limits.

`NATIVE` tells whether connections are native or their reference.
"""

import socket
from collections.abc import Callable, Iterable
from typing import Any

from common.net.limits import Limits
from common.net.server import ConnectionFactory, Server, listen
from common.net.tls import TlsContext
from common.twins import use_native

NATIVE = use_native("common.net", "_connection")
if NATIVE:
    from common.net._connection import CallConnection
else:
    from common.net.connection import CallConnection

__all__ = ["NATIVE", "Limits", "Server", "listen", "serve"]


def serve(
    listeners: Iterable[tuple[socket.socket, TlsContext | None]],
    limits: Limits,
    on_call: Callable[[Any, bytes], None] | None,
    *,
    prefix_check: Callable[[Any, bytes], bool] | None = None,
    make_connection: ConnectionFactory | None = None,
) -> Server:
    """Serve Thrift calls on listening sockets.

    Args:
        listeners: sockets from `listen()`, each with the context of its TLS or None.
        on_call: called as (connection, frame) in a loop callback, where it must not block; answers by
            `connection.reply`.
        prefix_check: called as (connection, first 64 KiB of the frame), once for a long frame before the first
            verified credential. Without it such a connection is closed.
        make_connection: called as (socket, peer, ssl_context) in place of `on_call`, for a native hot path.
    """
    return Server(listeners, limits, make_connection or _call_connections(limits, on_call, prefix_check))


def _call_connections(
    limits: Limits,
    on_call: Callable[[Any, bytes], None] | None,
    prefix_check: Callable[[Any, bytes], bool] | None,
) -> ConnectionFactory:
    def make(sock: socket.socket, peer: str, tls: TlsContext | None) -> Any:
        accepted: Any = sock.detach() if NATIVE else sock
        return CallConnection(accepted, limits, peer, tls, on_call, prefix_check)

    return make
