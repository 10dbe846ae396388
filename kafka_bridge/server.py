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
from kafka_bridge.strangers import UnprovenLinks

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
        self._operations = Operations(clusters)
        self.epoch = secrets.token_hex(16)
        self._links: set[BridgeLink] = set()
        self._changing = threading.Lock()
        listener = listening(address)
        self.port = 0 if address.host.startswith("/") else int(listener.getsockname()[1])
        self._strangers = UnprovenLinks(listener, lambda: BridgeGreeting(key, self.epoch), self._open)

    @property
    def links(self) -> int:
        """Open links, whose other ends have proved to know the key."""
        return len(self._links)

    @property
    def strangers(self) -> int:
        """Connections without that proof."""
        return len(self._strangers)

    @property
    def operations(self) -> Operations:
        return self._operations

    def stop_accepting(self) -> None:
        """Refuse new links, and answer further requests of the open ones with SHUTTING_DOWN."""
        self._operations.is_stopping = True
        self._strangers.stop()

    def stop(self) -> None:
        """Close every link once its answers have left."""
        with self._changing:
            links = list(self._links)
        for each in links:
            each.finish()

    def _open(self, sock: socket.socket, peer: str) -> None:
        """Begin the link of a proxy that has proved to know the key."""
        with self._changing:
            is_full = len(self._links) >= LINKS_MAX
            if not is_full:
                self._links.add(BridgeLink(sock, peer, self._serve, self._forget))
        if is_full:
            limited.warning("connection=%s: refused: there are %d links", peer, LINKS_MAX)
            sock.close()

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
    """A listening socket; a socket file is for this user and its group, and one that a killed process has left is replaced.

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
    mask = os.umask(0o117)
    try:
        sock.bind(address.host)
    finally:
        os.umask(mask)
    sock.listen(BACKLOG)
    return sock
