"""The append side of one broker: one connected lane per row of the durability table; native forms of lanes."""

import logging
import os
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import gevent
from gevent import socket as gevent_socket

from common.address import Address
from common.limited_log import LimitedLog
from common.limits.queue_limit import LOOK_S
from common.resting_timer import REST_S, RestingTimer
from common.twins import use_native
from engine.client.dial import Admits, Hello, admit_all, dial
from engine.client.durability import LANES
from engine.link.errors import LinkError

NATIVE = use_native("engine.client", "_destination", "_append_request", "_lane", "_lanes")
if NATIVE and not TYPE_CHECKING:
    from engine.client._destination import Destination, Destinations
    from engine.client._lane import Lane
    from engine.client._lanes import Lanes
else:
    from engine.client.destination import Destination, Destinations
    from engine.client.lane import Lane
    from engine.client.lanes import Lanes

__all__ = ["NATIVE", "AppendClient", "Destination", "Destinations", "Lane", "Lanes"]

limited = LimitedLog(logging.getLogger("penstock.engine.client"))
BACKOFF_S_MAX = 1.0


class AppendClient:
    """Appends to one broker; `lanes` are in the order of durability.LANES.

    While a lane is down it takes nothing. Connecting is retried with back-off until `close()`.

    Args:
        group: the broker group's number.
        admits: asked about the engine of each new connection; may block. One that is refused counts as away.
    Attributes:
        hello: of the newest connection; None: there was none yet.
        on_hello: called with the Hello of every new connection, before it is used: topic ids belong to its log_id and
            epoch.
        on_busy: called at the first message after a rest.
        on_up: called when a lane is connected. on_down: called with a sentence when a lane is lost or could not be
            connected.
    """

    def __init__(
        self, address: tuple[str, int], cluster_key: bytes, role: str = "producer_proxy", group: int = 0,
        admits: Admits = admit_all,
    ) -> None:  # fmt: skip
        self._address, self._cluster_key, self._role, self._admits = Address(*address), cluster_key, role, admits
        self.hello: Hello | None = None
        self.on_hello: Callable[[Hello], None] = lambda hello: None
        self.on_busy: Callable[[], object] = lambda: None
        self.on_up: Callable[[], None] = lambda: None
        self.on_down: Callable[[str], None] = lambda reason: None
        self.lanes = tuple(Lane(row, group) for row in LANES)
        self._closed = False
        self._appends, self._busy_s = 0, time.monotonic()
        self._expiry = RestingTimer(LOOK_S, self._expire)
        self._expiry.wake()
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

    @property
    def rests(self) -> bool:
        """Whether no message has come for REST_S, and none is without its answer."""
        return self._expiry.rests

    def close(self) -> None:
        """Close both connections; unanswered messages get TIMEOUT (may be stored) or UNAVAILABLE (were not sent)."""
        self._closed = True
        self._expiry.close()
        for lane in self.lanes:
            lane.drop("closed")

    def _expire(self) -> None:
        now = time.monotonic()
        for lane in self.lanes:
            lane.expire(now)
        self._rest_when_quiet(now)

    def _rest_when_quiet(self, now: float) -> None:
        appends = sum(lane.appends for lane in self.lanes)
        if appends != self._appends or not self.idle:
            self._appends, self._busy_s = appends, now
        elif now - self._busy_s > REST_S and all(lane.rest(self._wake) for lane in self.lanes):
            self._expiry.rest()

    def _wake(self) -> None:
        if self._expiry.wake():
            self._busy_s = now = time.monotonic()
            for lane in self.lanes:
                lane.limit.resume(now)
        self.on_busy()

    def _lost(self, lane: Lane) -> None:
        if not self._closed:
            self.on_down("the connection broke")
        self._connect(lane)

    def _connect(self, lane: Lane) -> None:
        if not self._closed:
            gevent.spawn(self._connect_until_done, lane)

    def _connect_until_done(self, lane: Lane) -> None:
        pause_s, logged = 0.01, False
        while not self._closed and lane.link is None:
            try:
                sock, hello = dial(self._address, self._cluster_key, role=self._role, sockets=gevent_socket)
                if refusal := self._admits(hello):
                    sock.close()
                    raise LinkError(refusal)
            except (OSError, LinkError) as error:
                if not logged:
                    limited.warning("engine=%s: not connected: %s", self._address, error, about=f"{self._address}")
                    logged = True
                self.on_down("no connection")
                gevent.sleep(pause_s)
                pause_s = min(BACKOFF_S_MAX, pause_s * 2)
                continue
            self._take(lane, sock, hello)

    def _take(self, lane: Lane, sock: socket.socket, hello: Hello) -> None:
        if self._closed:
            sock.close()
            return
        self.hello = hello
        self.on_hello(hello)
        sock.setblocking(False)
        self._use(lane, os.dup(sock.fileno()), hello)
        sock.close()
        self.on_up()

    def _use(self, lane: Lane, fd: int, hello: Hello) -> None:
        lane.use(fd, f"engine {self._address}")
