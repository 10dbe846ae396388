"""Addresses to listen at or connect to: host and port, or a socket file, distinguished as by PostgreSQL's clients.

On one machine a frame through a socket file costs a third of a frame through TCP.
"""

import ipaddress
import socket
from argparse import ArgumentTypeError
from types import ModuleType
from typing import Any, NamedTuple

from common.unpatched import UnpatchedSockets

UNIX = "unix:"
PATH_BYTES_MAX = 107  # the kernel's limit


class Address(NamedTuple):
    """Host and port; a host that begins with a slash is the path of a socket file, with port 0."""

    host: str
    port: int = 0

    def __str__(self) -> str:
        if self.host.startswith("/"):
            return UNIX + self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def host_and_port(text: str) -> Address:
    """Parse HOST:PORT or [IPv6]:PORT, as the type of an option. Raises ArgumentTypeError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ArgumentTypeError(f"{text!r} is not an address: use HOST:PORT or [IPV6]:PORT")
    return Address(host.strip("[]"), int(port))


def engine_address(text: str) -> Address:
    """Parse HOST:PORT, [IPv6]:PORT or unix:/PATH, as the type of an option. Raises ArgumentTypeError."""
    if not text.startswith(UNIX):
        return host_and_port(text)
    path = text.removeprefix(UNIX)
    if not path.startswith("/") or len(path.encode()) > PATH_BYTES_MAX:
        raise ArgumentTypeError(
            f"{text!r} is not a socket file: use unix:/PATH with at most {PATH_BYTES_MAX} bytes after unix:"
        )
    return Address(path)


def engine_addresses(text: str) -> Address | tuple[Address, ...]:
    """Parse one engine's address, or those of the brokers of a group, separated by commas. Raises ArgumentTypeError."""
    found = tuple(engine_address(each) for each in text.split(","))
    return found[0] if len(found) == 1 else found


def is_own_machine(host: str) -> bool:
    """Whether a host, or the path of a socket file, is on this machine: what is sent there has the same address as sender.

    The look-up of a name may block. One that is unknown or cannot be reached is not.
    """
    if host.startswith("/"):
        return True
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
        return any(_is_own(family, where) for family, _, _, _, where in found)
    except (OSError, UnicodeError):
        return False


def _is_own(family: int, where: Any) -> bool:
    if ipaddress.ip_address(where[0].partition("%")[0]).is_loopback:
        return True
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(where)  # which sends nothing
        return bool(probe.getsockname()[0] == where[0])


def connect(
    address: Address, timeout_s: float, sockets: ModuleType | type[UnpatchedSockets] = socket
) -> socket.socket:  # fmt: skip
    """Return a connected socket with this time-out. Raises OSError.

    Args:
        sockets: the module `socket`, gevent's where the process is not patched, or those of a thread where it is.
    """
    if not address.host.startswith("/"):
        sock: socket.socket = sockets.create_connection(address, timeout_s)
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
