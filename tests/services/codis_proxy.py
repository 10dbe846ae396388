"""Stand-in for codis: one address, keys routed to several servers by hash tag, and only some of Redis 3.2's commands.

Commands that codis refuses are refused here too; the servers behind it are real and have every other command renamed
away.
"""

import re
import socket
import socketserver
import threading
import zlib
from typing import Any

ALLOWED = {b"RPUSH", b"LRANGE", b"LLEN", b"LINDEX", b"LTRIM", b"EVAL", b"PING", b"ECHO", b"GET", b"SET"}
SERVER_COMMANDS = ("rpush", "lrange", "llen", "lindex", "ltrim", "eval", "ping", "echo", "get", "set")


class CodisProxy:
    """Routes to the servers on these ports."""

    def __init__(self, ports: list[int]) -> None:
        owner = self
        self.refused: list[bytes] = []
        self._ports = ports

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                owner._serve(self.rfile, self.wfile)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, incoming: Any, outgoing: Any) -> None:
        backends = [socket.create_connection(("127.0.0.1", port)).makefile("rwb") for port in self._ports]
        while request := reply(incoming):
            name, key = route(request)
            if name not in ALLOWED:
                self.refused.append(name)
                outgoing.write(b"-ERR handle request, command '%s' is not allowed\r\n" % name)
            else:
                tag = re.search(rb"\{([^}]+)\}", key)
                backend = backends[zlib.crc32(tag[1] if tag else key) % len(backends)]
                backend.write(request)
                backend.flush()
                outgoing.write(reply(backend))
            outgoing.flush()


def route(request: bytes) -> tuple[bytes, bytes]:
    """Return (command, routing key)."""
    parts = arguments(request)
    name = parts[0].upper()
    return name, parts[3 if name == b"EVAL" else 1] if len(parts) > 1 else b""


def arguments(request: bytes) -> list[bytes]:
    """Return the strings of a command, the first four of them."""
    found, at = [], request.index(b"\r\n") + 2
    while at < len(request) and len(found) < 4:
        end = request.index(b"\r\n", at)
        size = int(request[at + 1 : end])
        found.append(request[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return found


def reply(stream: Any) -> bytes:
    """Read one RESP value unchanged; empty at the end."""
    line = stream.readline()
    if not line:
        return b""
    if line[:1] == b"$":
        size = int(line[1:])
        return line if size < 0 else line + stream.read(size + 2)
    if line[:1] == b"*":
        return line + b"".join(reply(stream) for _ in range(max(0, int(line[1:]))))
    return line
