"""The bridge's listener: accepts links of proxies, on a socket file or a TCP address."""

import contextlib
import logging
import os
import secrets
import socket
import stat
import threading

from common.address import Address
from common.limited_log import LimitedLog
from engine.link.codes import INVALID
from engine.link.operations import FIND, PRODUCE
from kafka_bridge.clusters import Clusters
from kafka_bridge.greeting import BridgeGreeting
from kafka_bridge.link import BridgeLink
from kafka_bridge.operations import Operations

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
LINKS_MAX = 1_000
BACKLOG = 128


class BridgeServer:
    """Serves links until `stop()`.

    Args:
        key: the cluster key, which both ends prove to know.
    Attributes:
        port: the bound port; 0 with a socket file.
    """

    def __init__(self, address: Address, key: bytes, clusters: Clusters) -> None:
        self._key, self._operations = key, Operations(clusters)
        self.epoch = secrets.token_hex(16)
        self._links: set[BridgeLink] = set()
        self._changing = threading.Lock()
        self._listener = listening(address)
        self.port = 0 if address.host.startswith("/") else int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    @property
    def links(self) -> int:
        """Open links."""
        return len(self._links)

    @property
    def operations(self) -> Operations:
        return self._operations

    def stop_accepting(self) -> None:
        """Refuse new links, and answer further requests of the open ones with SHUTTING_DOWN."""
        self._operations.is_stopping = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def stop(self) -> None:
        """Close every link once its answers have left."""
        with self._changing:
            links = list(self._links)
        for each in links:
            each.finish()

    def _accept(self) -> None:
        while True:
            try:
                sock, place = self._listener.accept()
            except OSError:
                return  # the listener was closed
            if len(self._links) >= LINKS_MAX:
                limited.warning("connection=%s: refused: there are %d links", place, LINKS_MAX)
                sock.close()
                continue
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changing:
                self._links.add(
                    BridgeLink(
                        sock, f"{place or 'local'}", BridgeGreeting(self._key, self.epoch), self._serve, self._forget
                    )
                )

    def _forget(self, link: BridgeLink) -> None:
        with self._changing:
            self._links.discard(link)

    def _serve(self, link: BridgeLink, op: int, request_id: int, payload: bytes) -> None:
        if op == PRODUCE:
            self._operations.produce(link, request_id, payload)
        elif op == FIND:
            self._operations.find(link, request_id, payload)
        else:
            link.answer(op, request_id, INVALID, f"operation {op}: this Kafka bridge does not have it".encode())


def listening(address: Address) -> socket.socket:
    """A listening socket; a socket file is for this user only, and one that a killed process has left is replaced.

    Raises OSError.
    """
    if not address.host.startswith("/"):
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(address.host).st_mode):
            raise FileExistsError(17, "exists and is not a socket", address.host)
        os.unlink(address.host)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(address.host)
    finally:
        os.umask(mask)
    sock.listen(BACKLOG)
    return sock
