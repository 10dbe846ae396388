"""Where a process listens: a host and a port, or a socket file of this machine, told apart as PostgreSQL's clients do.

A frame through a socket file costs a third of what it costs through TCP on one machine.
"""

import socket
from argparse import ArgumentTypeError
from types import ModuleType
from typing import NamedTuple

UNIX = "unix:"
PATH_BYTES_MAX = 107  # what the kernel takes


class Address(NamedTuple):
    """A host that begins with a slash is the path of a socket file, and the port is 0."""

    host: str
    port: int = 0

    def __str__(self) -> str:
        if self.host.startswith("/"):
            return UNIX + self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def host_and_port(text: str) -> Address:
    """HOST:PORT or [IPv6]:PORT, as the type of a command's option. Raises ArgumentTypeError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return Address(host.strip("[]"), int(port))


def engine_address(text: str) -> Address:
    """HOST:PORT, [IPv6]:PORT or unix:/PATH, as the type of a command's option. Raises ArgumentTypeError."""
    if not text.startswith(UNIX):
        return host_and_port(text)
    path = text.removeprefix(UNIX)
    if not path.startswith("/") or len(path.encode()) > PATH_BYTES_MAX:
        raise ArgumentTypeError(
            f"{text!r}: a socket file's path begins with a slash and has at most {PATH_BYTES_MAX} bytes"
        )
    return Address(path)


def connect(address: Address, timeout_s: float, sockets: ModuleType = socket) -> socket.socket:
    """A connected socket with that time-out. Raises OSError.

    Args:
        sockets: the module `socket`, or gevent's where the process is not patched.
    """
    if not address.host.startswith("/"):
        sock = sockets.create_connection(address, timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    sock = sockets.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(address.host)
    except BaseException:
        sock.close()
        raise
    return sock
