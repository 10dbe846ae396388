"""The producer proxy as one object: its parts wired, started and stopped."""

import logging
import os
import time
from functools import partial

import gevent

from common.clock import SystemClock
from common.key_uses import KeyUses
from common.limits.leases import TICK_S
from common.net import Limits, serve
from common.principals import Principals
from engine.client.append import FSYNC, AppendClient
from engine.client.append import NATIVE as NATIVE_LANES
from engine.link.errors import LinkDown
from engine.link.layout import DEPTH, LEASE, UNAVAILABLE
from producer_proxy.buffer.buffering import Buffering
from producer_proxy.gate.depths import Depths
from producer_proxy.gate.gate import Gate
from producer_proxy.requests import Requests
from producer_proxy.send import DEFAULT_TIMEOUT_MS, RETRY_AFTER_MS, SENTENCES, SendService
from producer_proxy.topics import Topics

try:
    if not NATIVE_LANES:
        raise ImportError("the hot path needs native lanes")
    from producer_proxy._hot import Front
except ImportError:
    Front = None

log = logging.getLogger("penstock.producer_proxy")
DRAIN_S = 5.0


class ProducerProxy:
    """Serves `send` on the given listeners until `stop()`.

    Args:
        listeners: (socket, ssl_context or None) pairs from common.net.listen.
        view: the configuration; rpc: the broker's link for rare operations; engine, cluster_key: for the append lanes.
    """

    def __init__(
        self, listeners, view, rpc, engine: tuple[str, int], cluster_key: bytes, limits: Limits | None = None,
        buffering: Buffering | None = None,
    ):  # fmt: skip
        self._limits = limits or Limits()
        self._clock = SystemClock()
        self._rpc = rpc
        self._view = view
        self.buffering = buffering or Buffering({})
        self.buffer = self.buffering.over(view)
        self.client = AppendClient(engine, cluster_key, self._on_hello)
        depths = Depths(partial(self._ask, DEPTH), self._is_used, self._on_depth)
        self.gate = Gate(view, partial(self._ask, LEASE), [lane.limit for lane in self.client.lanes], depths)
        self.topics = Topics(view, rpc, buffer=self.buffer, fit=self.gate.fit)
        self._principals = Principals(view, self._clock)
        self.requests = Requests(rpc, cluster_key, self._clock.now_ms)
        self.service = SendService(
            self._principals,
            self.topics,
            self.client.lanes,
            self.gate,
            self.requests,
            self._clock.now_ms,
            self._learn,
            self.buffer,
            rpc,
        )
        self.front = self._make_front()
        self.buffering.start(self.topics, self.client.lanes[FSYNC], self.front)
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
            *self.client.lanes, topics.known, topics.is_right, self._view.generation, self.service.handle, sentences,
            os.urandom(6), DEFAULT_TIMEOUT_MS, RETRY_AFTER_MS, self.service.rescue,
        )  # fmt: skip

    def _hot_connection(self, sock, peer, ssl_context):
        return self.front.connection(sock.detach(), self._limits, peer, ssl_context, self._principals.prefix_verifies)

    def _learn(self, credential: bytes, principal) -> None:
        if self.front is None:
            return
        lasts_s = (principal.expires_at_ms - self._clock.now_ms()) / 1000
        meter = self.gate.application(principal.app)
        self.front.admit(credential, time.monotonic() + lasts_s, principal.send_patterns, meter, principal.origin)

    def _on_change(self) -> None:
        self.gate.follow()
        if self.front is not None:
            self.front.gate.own = self.gate.own
            self.front.forget(self._view.generation)

    def _ask(self, op: int, payload: bytes, answer) -> None:
        try:
            self._rpc.send(op, payload, answer)
        except LinkDown:
            answer(UNAVAILABLE, b"")

    def _is_used(self, topic: str) -> bool:
        return self.topics.known.get(topic.encode()) is not None

    def _on_depth(self, topic: str) -> None:
        destination, definition = self.topics.known.get(topic.encode()), self._view.topic(topic)
        if destination is not None and definition is not None:
            self.gate.fit(destination, definition)

    def _on_hello(self, hello) -> None:
        self.topics.on_hello(hello.log_id)

    @property
    def key_uses(self) -> KeyUses:
        """When each key was used last, as a metric."""
        return self._principals.uses

    def health(self) -> dict:
        """What /readyz shows."""
        return {
            "engine": (self.client.connected and self._rpc.connected) or "the link to the engine is down",
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
        while (self.service.in_work or not self.client.idle) and time.monotonic() < deadline:
            gevent.sleep(0.005)
        self.requests.release()
        gevent.sleep(0.05)  # the last answers leave; clients that call once more are told SHUTTING_DOWN
        self._ticking.stop()
        self.server.close()
        self.buffering.stop()
        self.client.close()
