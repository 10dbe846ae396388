"""Readiness of a process by its operator's port.

Over a plain socket: an HTTP client would take 8 MB of the supervisor, which stays in memory with the other processes.
"""

import socket

PAGE_S_MAX = 2.0


def is_ready(host: str, port: int) -> bool:
    """Whether /readyz answers with status 200."""
    try:
        with socket.create_connection((host, port), timeout=PAGE_S_MAX) as connection:
            connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            return connection.recv(64).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False
