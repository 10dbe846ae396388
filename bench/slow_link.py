"""Relay that slows a server: a limit of bytes per second toward it, or a delay, per connection.

Answers return at once. Bytes wait in the relay, so a real broker gets a known, small capacity.
"""

import socket
import threading
import time
from typing import Self

CHUNK_BYTES = 4096
CATCH_UP_S = 0.05  # a thread that woke late may catch up by this much


class SlowLink:
    """A listening relay.

    Args:
        target: the server's address. bytes_per_s: 0: unlimited. delay_s: before each chunk is passed on, independent
            of later chunks.
    """

    def __init__(self, target: tuple[str, int], bytes_per_s: float = 0.0, delay_s: float = 0.0) -> None:
        self._target, self._bytes_per_s, self._delay_s = target, bytes_per_s, delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.getsockname()[:2]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in [self._listener, *self._sockets]:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, server]
            threading.Thread(target=self._pass_slowly, args=(client, server), daemon=True).start()
            threading.Thread(target=_pass, args=(server, client), daemon=True).start()

    def _pass_slowly(self, source: socket.socket, sink: socket.socket) -> None:
        free_at = time.monotonic()
        try:
            while data := source.recv(CHUNK_BYTES):
                came = time.monotonic()
                free_at = max(free_at, came - CATCH_UP_S) + (
                    len(data) / self._bytes_per_s if self._bytes_per_s else 0.0
                )
                time.sleep(max(0.0, max(free_at, came + self._delay_s) - time.monotonic()))
                sink.sendall(data)
        except OSError:
            pass
        _end(sink)


def _pass(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            sink.sendall(data)
    except OSError:
        pass
    _end(sink)


def _end(sink: socket.socket) -> None:
    try:
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
