"""Functions as they were before gevent patched them, for threads of the system."""

import _socket
import sys
from collections.abc import Callable
from typing import Any


def original(module: str, name: str) -> Callable:
    """The function as it was before gevent patched it; in a process without gevent, the function itself.

    Threads of the system and the loop may share only such locks. To wait for a lock of gevent's is to switch greenlets,
    which a callback of the loop cannot do: it would fail whenever a thread has the lock.
    """
    monkey = sys.modules.get("gevent.monkey")
    found: Callable = monkey.get_original(module, name) if monkey else getattr(__import__(module), name)
    return found


class UnpatchedSockets:
    """Stands for the module `socket` in a thread of the system: its sockets belong to no loop and to no thread."""

    @staticmethod
    def socket(family: int, kind: int) -> Any:
        """A socket."""
        return original("socket", "socket")(family, kind)

    @staticmethod
    def create_connection(address: tuple[str, int], timeout_s: float) -> Any:
        """Connect over TCP to the first of the host's addresses that accepts. Raises OSError."""
        refused: OSError = OSError(f"{address[0]}: has no address")
        for family, kind, _, _, found in _socket.getaddrinfo(*address, 0, _socket.SOCK_STREAM):
            sock = UnpatchedSockets.socket(family, kind)
            try:
                sock.settimeout(timeout_s)
                sock.connect(found)
            except OSError as error:
                sock.close()
                refused = error
            else:
                return sock
        raise refused
