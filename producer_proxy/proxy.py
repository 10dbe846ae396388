"""The producer proxy as one object: its parts wired, started and stopped."""

import logging
import os
import time

import gevent

from common.clock import SystemClock
from common.key_uses import KeyUses
from common.limits.quota_slices import TICK_S
from common.net import Limits, serve
from common.principals import Principals
from engine.client.append import FSYNC, Destinations
from engine.client.append import NATIVE as NATIVE_LANES
from engine.client.brokers import Brokers
from producer_proxy.admission.admission import Gate
from producer_proxy.admission.engine_queries import Asking
from producer_proxy.admission.lag import Depths
from producer_proxy.buffer.buffering import Buffering
from producer_proxy.requests.grouped import GroupedRequests
from producer_proxy.send.send import DEFAULT_TIMEOUT_MS, RETRY_AFTER_MS, SENTENCES, SendService
from producer_proxy.send.topics import DESTINATIONS_MAX, Topics

try:
    if not NATIVE_LANES:
        raise ImportError("the hot path needs native lanes")
    from producer_proxy.hot._hot import Front
except ImportError:
    Front = None

log = logging.getLogger("penstock.producer_proxy")
DRAIN_S = 5.0


class ProducerProxy:
    """Serves `send` on the given listeners until `stop()`.

    Args:
        listeners: (socket, ssl_context or None) pairs from common.net.listen.
        view: the configuration.
        brokers: where messages go. Without an only one they are those that the configuration names, followed from here on.
    """

    def __init__(
        self, listeners, view, brokers: Brokers, limits: Limits | None = None, buffering: Buffering | None = None
    ):
        self._limits = limits or Limits()
        self._clock = SystemClock()
        self._view = view
        self.buffering = buffering or Buffering({})
        self.buffer = self.buffering.over(view)
        self.brokers = brokers
        known = Destinations(DESTINATIONS_MAX)
        asking = Asking(brokers, known)
        depths = Depths(asking.depths, lambda topic: known.get(topic.encode()) is not None, self._on_depth)
        self.gate = Gate(view, asking.lender, lambda: brokers.queue_limits, depths)
        self.topics = Topics(view, brokers, known, buffer=self.buffer, fit=self.gate.fit)
        brokers.on_changed = known.clear
        self._follow_groups()
        self._principals = Principals(view, self._clock)
        self.requests = GroupedRequests(brokers, self._clock)
        self.service = SendService(
            self._principals,
            self.topics,
            brokers.lanes,
            self.gate,
            self.requests,
            self._clock.now_ms,
            self._learn,
            self.buffer,
            brokers,
        )
        self.front = self._make_front()
        self.buffering.start(self.topics, brokers.lanes[FSYNC], self.front)
        self._on_change()
        view.on_change(self._on_change)
        self._ticking = gevent.get_hub().loop.timer(0, TICK_S)
        self._ticking.start(self.gate.tick)
        make = self._hot_connection if self.front is not None else None
        self.server = serve(
            listeners,
            self._limits,
            self.service.handle,
            prefix_check=self._principals.prefix_verifies,
            make_connection=make,
        )

    def _make_front(self):
        if Front is None:
            return None
        sentences = {int(code): sentence.encode() for code, sentence in SENTENCES.items()}
        topics = self.topics
        return Front(
            *self.brokers.lanes, topics.known, topics.is_right, self._view.generation, self.service.handle, sentences,
            os.urandom(6), DEFAULT_TIMEOUT_MS, RETRY_AFTER_MS, self.service.rescue,
            self.requests,
        )  # fmt: skip

    def _hot_connection(self, sock, peer, ssl_context):
        return self.front.connection(sock.detach(), self._limits, peer, ssl_context, self._principals.prefix_verifies)

    def _learn(self, credential: bytes, principal) -> None:
        if self.front is None:
            return
        lasts_s = (principal.expires_at_ms - self._clock.now_ms()) / 1000
        meter = self.gate.application(principal.app)
        self.front.admit(credential, time.monotonic() + lasts_s, principal.send_patterns, meter, principal.origin)

    def _follow_groups(self) -> None:
        if self.brokers.only is None:
            self.brokers.follow([(group.name, group.host_and_port) for group in self._view.broker_groups()])

    def _on_change(self) -> None:
        self._follow_groups()
        self.gate.follow()
        if self.front is not None:
            self.front.gate.own = self.gate.own
            self.front.request_calls.takes_replies = "reply" not in self.gate.settings.features_off
            self.front.forget(self._view.generation)

    def _on_depth(self, topic: str) -> None:
        destination, definition = self.topics.known.get(topic.encode()), self._view.topic(topic)
        if destination is not None and definition is not None:
            self.gate.fit(destination, definition)

    @property
    def key_uses(self) -> KeyUses:
        """When each key was used last, as a metric."""
        return self._principals.uses

    @property
    def _is_idle(self) -> bool:
        """Nothing is taken that has no answer."""
        return not self.service.in_work and self.brokers.idle and self.requests.is_idle

    def health(self) -> dict:
        """What /readyz shows."""
        return {
            "engine": self.brokers.health(),
            "serving": not self.service.closing or "stopping",
            **self.buffering.health(),
        }

    def stop(self) -> None:
        """Stop accepting, answer SHUTTING_DOWN to what still comes, wait for what was taken, close. Blocks up to DRAIN_S."""
        self.server.stop_accepting()
        self.service.closing = True
        if self.front is not None:
            self.front.closing = True
        deadline = time.monotonic() + DRAIN_S
        while not self._is_idle and time.monotonic() < deadline:
            gevent.sleep(0.005)
        self.requests.release()
        gevent.sleep(0.05)  # the last answers leave; clients that call once more are told SHUTTING_DOWN
        self._ticking.stop()
        self.requests.close()
        self.server.close()
        self.buffering.stop()
        self.brokers.close()
