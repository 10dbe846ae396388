"""The append side of a broker: two lanes that are kept connected."""

import logging
import os
import time
from collections.abc import Callable

import gevent
from gevent import socket as gevent_socket

from common.address import Address
from common.limits.queue_limit import LOOK_S
from engine.client.dial import Hello, dial
from engine.link.errors import LinkError

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("the pure twin was asked for")
    from engine.client._batcher import Lane
    from engine.client._destination import Destination, Destinations
    from engine.client._lanes import Lanes

    NATIVE = True
except ImportError:
    from engine.client.batcher import Destination, Destinations, Lane
    from engine.client.lanes import Lanes

    NATIVE = False

__all__ = ["NATIVE", "AppendClient", "Destination", "Destinations", "Lane", "Lanes"]

log = logging.getLogger("penstock.engine.client")
MEMORY, FSYNC = 0, 1
BACKOFF_S_MAX = 1.0


class AppendClient:
    """Appends to one broker, by lane: `lanes[MEMORY]`, `lanes[FSYNC]`.

    While a lane is down nothing is taken; connecting goes on with back-off until `close()`.

    Args:
        group: the broker group's number.
    Attributes:
        on_hello: called with the Hello of every new connection, before it is used: topic ids belong to its log_id.
        on_up: called when a lane is connected. on_down: called with a sentence when one is not any more, or could not be.
    """

    def __init__(self, address: tuple[str, int], cluster_key: bytes, role: str = "producer_proxy", group: int = 0):
        self._address, self._cluster_key, self._role = Address(*address), cluster_key, role
        self.on_hello: Callable[[Hello], None] = lambda hello: None
        self.on_up: Callable[[], None] = lambda: None
        self.on_down: Callable[[str], None] = lambda reason: None
        # Two syncs overlap: while one is on the disk the next append is already at the broker, so the disk never waits for the network.
        self.lanes = (Lane(MEMORY, 1, group), Lane(FSYNC, 2, group))
        self._closed = False
        self._expiry = gevent.get_hub().loop.timer(LOOK_S, LOOK_S)
        self._expiry.start(self._expire)
        for lane in self.lanes:
            lane.on_down = self._lost
            self._connect(lane)

    @property
    def connected(self) -> bool:
        return all(lane.link is not None for lane in self.lanes)

    @property
    def idle(self) -> bool:
        """Every message taken has its answer."""
        return all(lane.idle for lane in self.lanes)

    def close(self) -> None:
        """Close both connections; unanswered messages get TIMEOUT (may be stored) or UNAVAILABLE (were not sent)."""
        self._closed = True
        self._expiry.stop()
        for lane in self.lanes:
            lane.drop("closed")

    def _expire(self) -> None:
        now = time.monotonic()
        for lane in self.lanes:
            lane.expire(now)

    def _lost(self, lane) -> None:
        if not self._closed:
            self.on_down("the connection broke")
        self._connect(lane)

    def _connect(self, lane) -> None:
        if not self._closed:
            gevent.spawn(self._connect_until_done, lane)

    def _connect_until_done(self, lane) -> None:
        pause_s, told = 0.01, False
        while not self._closed and lane.link is None:
            try:
                sock, hello = dial(self._address, self._cluster_key, role=self._role, sockets=gevent_socket)
            except (OSError, LinkError) as error:
                if not told:
                    log.warning("engine=%s: not connected: %s", self._address, error)
                    told = True
                self.on_down("no connection")
                gevent.sleep(pause_s)
                pause_s = min(BACKOFF_S_MAX, pause_s * 2)
                continue
            self._take(lane, sock, hello)

    def _take(self, lane, sock, hello: Hello) -> None:
        if self._closed:
            sock.close()
            return
        self.on_hello(hello)
        sock.setblocking(False)
        lane.use(os.dup(sock.fileno()), f"engine {self._address}")
        sock.close()
        self.on_up()
