"""The consumer proxy as one object: wires, starts and stops its parts."""

import logging
import os
import time
from functools import partial
from typing import Any

import gevent

from common.clock import SystemClock
from common.config import ConfigView
from common.config.engine_records import EngineRecords
from common.config.health import config_health
from common.contract import Code
from common.limits.quota_slices import TICK_S, QuotaSlices
from common.net import Limits, serve
from common.net.connection_list import ConnectionList, ConnectionUse
from common.ops.drain_pages import OUT_OF_SERVICE, DrainSwitch
from common.readiness import Note
from common.reply_token import reply_key
from common.tracing.records import SpanQueue
from consumer_proxy.admission.admission import PullAdmission
from consumer_proxy.pull.connection_use import use_of
from consumer_proxy.pull.native import NATIVE
from consumer_proxy.pull.pull import Pulls
from consumer_proxy.pull.tracing import PullTracing
from consumer_proxy.settings import Settings
from consumer_proxy.sources.base import Source
from consumer_proxy.stats import Stats, StatsCollector

log = logging.getLogger("penstock.consumer")
_LAST_ANSWERS_S = 0.05


class ConsumerProxy:
    """Serves `pull` on the given listeners until `stop()`.

    Args:
        listeners: (socket, ssl_context or None) pairs from common.net.listen.
        source: any source; closed with the proxy.
        cluster_key: the secret that the proxies of a cluster share; reply tokens depend on it.
        records: of the engines; its refusals are shown by /readyz.
    """

    def __init__(
        self, listeners: list[Any], view: ConfigView, source: Source, limits: Limits, cluster_key: bytes,
        settings: Settings | None = None, records: EngineRecords | None = None,
    ):  # fmt: skip
        self._view = view
        self._refusals = records.refusals if records is not None else {}
        self._settings = settings or Settings()
        self._source = source
        self._stopping = False
        self.drain_switch = DrainSwitch(self)
        clock = SystemClock()
        self._stats = stats = Stats()
        leases = QuotaSlices("consumer_proxy", os.urandom(8).hex(), source.lend, clock.monotonic_s)
        admission = PullAdmission(view, clock, self._settings.verdicts_max, leases, partial(reply_key, cluster_key))
        self.pulls = Pulls(admission, source, self._settings, clock, stats, gevent.spawn_later)
        view.on_change(self.pulls.changes.follow)
        self._ticking = gevent.get_hub().loop.timer(0, TICK_S)
        self._lend = leases.tick
        self._ticking.start(self._tick)
        self.server = serve(
            listeners,
            limits,
            self.pulls.on_call,
            prefix_check=admission.prefix_verifies,
        )
        self.key_uses = admission.key_uses
        self.metrics = StatsCollector(
            stats, lambda: self.pulls.waiting, lambda: len(self.server.connections), lambda: source.up
        )
        log.info("byte work: %s", "native" if NATIVE else "pure Python")

    def health(self) -> dict[str, bool | str]:
        """Conditions of /readyz."""
        return {
            "engine": self._engine_health(),
            "configuration": config_health(self._view),
            "credentials": self.pulls.brake.health(),
            "connections": self.server.places.health(),
            "serving": OUT_OF_SERVICE if self.drain_switch.is_out else not self._stopping or "stopping",
        }

    def _engine_health(self) -> bool | str:
        refused = next(iter(self._refusals.values()), None)
        if self._source.up:
            return True if refused is None else Note(refused)
        return refused or "the link to the engine is down"

    def connections(self) -> ConnectionList:
        """The clients' connections, for operators. A topic is reached by those whose last pull read it."""

        def reaches(use: ConnectionUse, topic: str) -> bool:
            return topic in use.topics

        return ConnectionList(self.server, os.urandom(4).hex(), use_of, reaches)

    def deliveries_of(self, topic: str, queue: int, offset: int) -> list[dict[str, Any]]:
        """The known deliveries of one message, for operators."""
        return self.pulls.deliveries.of_message(self.server, topic, queue, offset)

    def _tick(self) -> None:
        if not self.drain_switch.is_out:  # its quota slices and its static share go to the other proxies
            self._lend()
        self.pulls.sweep()

    def trace(self, spans: SpanQueue) -> None:
        """Trace pulls from now on."""
        self.pulls.tracing = PullTracing(spans)

    def drain(self) -> None:
        """Answer SHUTTING_DOWN to further calls; pulls that wait are answered now.

        Messages that clients hold stay leased to them: they acknowledge at another proxy.
        """
        self.pulls.stop()

    def undrain(self) -> None:
        """Take calls again."""
        self.pulls.resume()

    def refused_draining(self) -> int:
        """Pulls that were answered SHUTTING_DOWN since the start."""
        return self._stats.codes[Code.SHUTTING_DOWN]

    def left(self) -> dict[str, int]:
        """Nothing: all that it delivers is the engine's."""
        return {}

    def stop(self) -> None:
        """Stop accepting, answer every pull, flush, close. Blocks for up to `stop_grace_ms`."""
        self._stopping = True
        self.server.stop_accepting()
        self.pulls.stop()
        deadline_s = time.monotonic() + self._settings.stop_grace_ms / 1000
        while self.pulls.waiting and time.monotonic() < deadline_s:
            gevent.sleep(0.005)
        self.pulls.abandon()
        gevent.sleep(_LAST_ANSWERS_S)  # time for SHUTTING_DOWN to clients that call once more
        for connection in list(self.server.connections):
            connection.close_when_sent()
        while self.server.connections and time.monotonic() < deadline_s:
            gevent.sleep(0.005)
        self._ticking.stop()
        self.server.close()
        self._source.close()
