"""The listening link server, put together: connections, turn, service, timers."""

import logging
import os
import time

import gevent

from common.net.limits import Limits
from common.net.server import Server, listen, listen_file
from engine.delivery.delivery import Delivery
from engine.errors import EngineError
from engine.link.layout import FRAME_BYTES_MAX
from engine.replies.exchange import Exchange
from engine.replies.requests import Requests
from engine.server import serve as serve_pure
from engine.server.ops.admin import Admin
from engine.server.ops.lookup import Looking
from engine.server.ops.timer import Timing
from engine.server.peer import Greeter
from engine.server.service import Service, monotonic_ms
from engine.timers.timers import Timers

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("twins asked for")
    from engine.log.write.native import NATIVE as _LOG_IS_NATIVE

    if not _LOG_IS_NATIVE:
        raise ImportError("the appender is the twin")
    from engine.server import _serve as _form  # type: ignore[attr-defined]

    NATIVE = True
except ImportError:
    _form = serve_pure  # type: ignore[assignment]

    NATIVE = False

log = logging.getLogger("penstock.engine")
LIMITS = Limits(frame_bytes_max=FRAME_BYTES_MAX, connections_max=10_000)
TICK_S = 0.02
PROGRESS_PLACES = 256
"""Written at once: about a millisecond. A group that reads a hundred thousand queues would hold up the loop otherwise."""
PROGRESS_PAUSE_S = 0.002


class LinkServer:
    """Serves one log's link on one address until `close()`.

    Args:
        progress_ms: least time between two progress records of one queue.
        stop: called when an operator asks over the link for the process to end.
        socket_file: where processes of this machine find the same link at less cost than by TCP.
        timers: delayed messages, when the engine takes them; die: called with a reason when only a restart can help.
        form: the module with Turn and LinkConnection; tests give both.
    """

    def __init__(
        self, store, delivery: Delivery, host: str, port: int, cluster_key: bytes, *,
        broker_group: str, progress_ms: int, stop, socket_file: str | None = None, form=_form,
        timers: Timers | None = None, die=None,
    ) -> None:  # fmt: skip
        self.store, self.delivery = store, delivery
        delivery.on_time(monotonic_ms())
        greeter = Greeter(cluster_key, store.log_id, broker_group, os.urandom)
        admin = Admin(store, delivery, self._facts, stop)
        loop = gevent.get_hub().loop
        self._tick = loop.timer(TICK_S, TICK_S)
        self._ticking = False
        delivery.requests = Requests(delivery.wall_ms)
        self.service = Service(store, delivery, greeter, admin, Exchange(delivery.requests), self._wake)
        self.looking = Looking(store, self.service)
        self.service.serve(self.looking.handlers)
        self.timers, self._timing = timers, None
        if timers is not None:
            self._timing = Timing(store, timers, self.service.on_woken, die)
            self.service.serve(self._timing.handlers)
        self._form = form
        self.turn = form.Turn(store, self.service)
        self._progress = loop.timer(progress_ms / 1000, progress_ms / 1000)
        self._progress.start(self._on_progress)
        self._more_progress = loop.timer(PROGRESS_PAUSE_S)
        listeners = [listen(host, port), *([listen_file(socket_file)] if socket_file else [])]
        self._server = Server([(sock, None) for sock in listeners], LIMITS, self._connect)

    @property
    def port(self) -> int:
        """The bound port."""
        return self._server.ports[0]

    @property
    def connections(self) -> set:
        """Open connections."""
        return self._server.connections

    def stop_accepting(self) -> None:
        """No new connections; who waits is answered with what there is."""
        self._server.stop_accepting()
        self.service.release_waiting(self._server.connections)

    def drain(self, timeout_s: float) -> None:
        """Close each connection behind its last answer; blocks this greenlet until all have gone, or the time has."""
        until = time.monotonic() + timeout_s
        for connection in list(self._server.connections):
            connection.close_when_sent()
        while self._server.connections and time.monotonic() < until:
            gevent.sleep(0.002)

    def close(self) -> None:
        """Write progress and close everything. What was answered is in the log."""
        self._tick.stop()
        if self._timing is not None:
            self._timing.close()
        self.looking.close()
        self._progress.stop()
        self._more_progress.stop()
        self._server.close()
        self._write_progress()

    def _connect(self, sock, peer: str, _):
        owned = sock if self._form is serve_pure else sock.detach()
        return self._form.LinkConnection(owned, LIMITS, peer, self.turn, self.service)

    def _wake(self) -> None:
        # The timer runs only while something waits for time to pass, so an idle engine sleeps.
        if not self._ticking:
            self._ticking = True
            self._tick.start(self._on_tick)

    def _on_tick(self) -> None:
        if not self.service.on_time():
            self._ticking = False
            self._tick.stop()

    def _on_progress(self) -> None:
        if not self._more_progress.active:
            self._write_progress(PROGRESS_PLACES)

    def _write_progress(self, places_max: int | None = None) -> None:
        try:
            if self.delivery.has_progress and not self.delivery.write_progress(places_max):
                self._more_progress.start(self._write_progress, PROGRESS_PLACES)
        except EngineError as error:
            log.warning("progress could not be written, trying again: %s", error)

    def _facts(self) -> dict:
        turn = self.turn
        return {
            "native": self._form is not serve_pure,
            "connections": len(self._server.connections),
            "appends": turn.appends,
            "messages": turn.messages,
            "bytes": turn.bytes,
            "timers_pending": 0 if self.timers is None else len(self.timers.table),
        }
