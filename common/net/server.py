"""Server: listening sockets and accepted connections of either form.

Callers use `serve()`; docs/design/0001-seams.md, section 2, lists its guarantees.
"""

import contextlib
import errno
import itertools
import logging
import os
import socket
import stat
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import gevent
from gevent import socket as gevent_socket

from common.limited_log import LimitedLog
from common.net.limits import Limits
from common.net.places import Places
from common.net.tls import TlsContext

limited = LimitedLog(logging.getLogger("penstock.net"))
ConnectionFactory = Callable[[socket.socket, str, TlsContext | None], Any]
ACCEPTS_PER_TURN = 64
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def listen(host: str, port: int, backlog: int = 1024) -> socket.socket:
    """Return a listening, non-blocking TCP socket; port 0 takes a free one. Raises OSError for an address in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = gevent_socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}") from error
    sock.listen(backlog)
    return sock


def listen_file(path: str, backlog: int = 1024) -> socket.socket:
    """As listen(), on a socket file that only this user may open. Raises OSError.

    A file left by a killed process is replaced. The caller makes sure that no live process
    uses the file, by the lock on the data that it serves. Anything but a socket is left alone: FileExistsError.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "exists and is not a socket", path)
        os.unlink(path)
    sock = gevent_socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(path)
    finally:
        os.umask(mask)
    sock.listen(backlog)
    return sock


class Accepted(NamedTuple):
    """Facts about a connection from when it was accepted. Its number is used once per process."""

    number: int
    at_ms: int


class Server:
    """Listening sockets and their connections.

    Args:
        listeners: sockets, each with the context of its TLS or None.
        make_connection: called as (socket, peer, ssl_context); returns a connection, which owns the socket and has
            `on_close`, `close(reason)` and `closed`.
    """

    def __init__(
        self,
        listeners: Iterable[tuple[socket.socket, TlsContext | None]],
        limits: Limits,
        make_connection: ConnectionFactory,
    ) -> None:
        self.limits = limits
        self.connections: dict[Any, Accepted] = {}
        self._numbers = itertools.count(1)
        self.places = Places(limits.connections_max)
        self._make_connection = make_connection
        self._watchers = []
        loop = gevent.get_hub().loop
        for sock, ssl_context in listeners:
            watcher = loop.io(sock.fileno(), 1)
            watcher.start(self._accept, sock, ssl_context, watcher)
            self._watchers.append((watcher, sock))

    @property
    def ports(self) -> list[int]:
        """The port of each listener, in the given order."""
        return [sock.getsockname()[1] for _, sock in self._watchers]

    def _accept(self, sock: Any, ssl_context: TlsContext | None, watcher: Any) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                descriptor, address = sock._accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    # The pending connection keeps the listener readable: accept again later instead of spinning.
                    limited.warning("listener=%s: %s; accepting again in 0.1 s", sock.getsockname(), error.strerror)
                    watcher.stop()
                    gevent.get_hub().loop.timer(0.1).start(self._resume, sock, ssl_context, watcher)
                return
            self._connect(socket.socket(sock.family, sock.type, fileno=descriptor), address, ssl_context)

    def _resume(self, sock: Any, ssl_context: TlsContext | None, watcher: Any) -> None:
        if sock.fileno() >= 0:
            watcher.start(self._accept, sock, ssl_context, watcher)

    def _connect(self, client: socket.socket, address: Any, ssl_context: TlsContext | None) -> None:
        if len(self.connections) >= self.limits.connections_max and not self.places.make_room():
            client.close()
            return
        client.setblocking(False)
        if client.family == socket.AF_UNIX:
            peer = "this machine"
        else:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = f"{address[0]}:{address[1]}"
        connection = self._make_connection(client, peer, ssl_context)
        connection.on_close, connection.on_trust = self._forget, self.places.on_trust
        self.connections[connection] = Accepted(next(self._numbers), int(time.time() * 1000))
        self.places.accept(connection, is_tls=ssl_context is not None)
        if connection.closed:
            self._forget(connection)

    def _forget(self, connection: Any) -> None:
        self.connections.pop(connection, None)
        self.places.leave(connection)

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections stay open."""
        for watcher, sock in self._watchers:
            watcher.stop()
            sock.close()

    def close(self) -> None:
        """Stop accepting and close every connection at once, answered or not."""
        self.stop_accepting()
        for connection in list(self.connections):
            connection.close("server closed")
