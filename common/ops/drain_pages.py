"""`GET /drain` and `POST /drain` on the operator's port of a proxy: it is taken out of service, and put back.

Reading needs no proof, as with /connections; a change needs one. The state is the process's own: a process
that starts serves.
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

from common.clock import Clock
from common.net.connection_list import ConnectionList, OpenCalls
from common.net.server import Server
from common.operator_proof import BACK, DRAIN_PATH, OUT, ProxyKey
from common.ops.connection_pages import MorePages, OpsAnswer, OpsRequest, connection_pages

log = logging.getLogger("penstock.ops")

OUT_OF_SERVICE = "drained by an operator: `penstock proxy undrain` puts it back"


class Drainable(Protocol):
    """A proxy that can be taken out of service."""

    def drain(self) -> None:
        """Answer SHUTTING_DOWN to further calls from now on, and end those that only wait. Returns at once."""

    def undrain(self) -> None:
        """Take calls again."""

    @property
    def server(self) -> Server:
        """Its clients' connections."""

    def refused_draining(self) -> int:
        """Calls or messages that were answered SHUTTING_DOWN since the start."""

    def left(self) -> Mapping[str, int]:
        """Numbers of items that the proxy still has to pass on, by the name of their store, such as the fallback buffer."""


class DrainSwitch:
    """Whether the proxy is in service, and what it still has to do.

    Attributes:
        is_out: an operator has taken it out of service.
    """

    def __init__(self, proxy: Drainable) -> None:
        self._proxy = proxy
        self._start, self._changes = os.urandom(4).hex(), 0
        self.is_out = False
        self._since_s, self._refused_before = 0.0, 0
        self._open: OpenCalls | None = None  # as of when it was taken out of service

    @property
    def turn(self) -> str:
        """Names the present state among all that ever were: a request that was made for another one changes nothing."""
        return f"{self._start}-{self._changes}"

    def turn_to(self, out: bool) -> None:
        self._changes += 1
        self.is_out = out
        if out:
            self._since_s, self._refused_before = time.monotonic(), self._proxy.refused_draining()
            self._proxy.drain()
            self._open = OpenCalls(self._proxy.server)
        else:
            self._proxy.undrain()
            self._open = None

    def standing(self) -> dict[str, Any]:
        """The page's value. Of a proxy that is out, calls are those that it took before."""
        server, left = self._proxy.server, dict(self._proxy.left())
        calls, answers = (self._open or OpenCalls(server)).unfinished()
        state = "serving"
        if self.is_out:
            state = "draining" if calls or answers or any(left.values()) else "drained"
        return {
            "state": state, "turn": self.turn, "calls": calls, "answers": answers,
            "connections": len(server.connections),
            "passed_on": self._proxy.refused_draining() - self._refused_before if self.is_out else 0,
            "out_s": round(time.monotonic() - self._since_s, 3) if self.is_out else 0.0, "left": left,
        }  # fmt: skip


def drain_pages(switch: DrainSwitch, key: ProxyKey, process: str, clock: Clock) -> MorePages:
    """The page by its path.

    Args:
        process: the name under which this process reports.
    """

    def change(asked: OpsRequest) -> OpsAnswer:
        if fault := asked.fault(key, process, DRAIN_PATH, clock):
            return "403 Forbidden", {"error": fault}
        wanted, _, turn = asked.body.decode("ascii", "replace").partition(" ")
        if wanted not in (OUT, BACK):
            return "400 Bad Request", {"error": f"{json.dumps(wanted[:20])}: use {OUT} or {BACK}, and the turn"}
        if turn != switch.turn:
            return "409 Conflict", {"error": "its state was changed meanwhile: look at it, and ask again"}
        if switch.is_out is not (wanted == OUT):
            switch.turn_to(wanted == OUT)
            log.info("process=%s: %s by an operator", process, "drained" if switch.is_out else "put back into service")
        return "200 OK", switch.standing()

    def page(asked: OpsRequest) -> OpsAnswer:
        if asked.method in ("GET", "HEAD"):
            return "200 OK", switch.standing()
        if asked.method != "POST":
            return "405 Method Not Allowed", {"error": "method not allowed: use GET or POST"}
        return change(asked)

    return {DRAIN_PATH: page}


def proxy_pages(
    connections: ConnectionList, switch: DrainSwitch, key: ProxyKey, process: str, clock: Clock
) -> MorePages:
    """All pages that a proxy has beside those of every process."""
    return {**connection_pages(connections, key, process, clock), **drain_pages(switch, key, process, clock)}
