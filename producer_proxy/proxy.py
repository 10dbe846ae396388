"""The producer proxy as one object: its parts wired, started and stopped."""

import os
import time
from collections.abc import Mapping
from typing import Any

import gevent

from common.clock import SystemClock
from common.config.definitions import SEND
from common.config.health import config_health
from common.config.store import ConfigStore
from common.contract import Code
from common.credential import Principal
from common.ids import process_bytes
from common.key_uses import KeyUses
from common.limits.quota_slices import TICK_S
from common.net import Limits, serve
from common.net.connection_list import ConnectionList, ConnectionUse
from common.ops.drain_pages import OUT_OF_SERVICE, DrainSwitch
from common.principals import REMEMBERED_BYTES_MAX, Principals
from common.tracing.records import SpanQueue
from engine.client.append import Destinations
from engine.client.brokers import Brokers
from engine.client.durability import CLASSES
from producer_proxy.admission.admission import SendAdmission
from producer_proxy.admission.backlog import TopicBacklogs
from producer_proxy.admission.engine_queries import EngineQueries
from producer_proxy.admission.fences import Fences
from producer_proxy.buffer.buffering import Buffering
from producer_proxy.hot.native import Front, HotConnection
from producer_proxy.journal.copied import CopiedReport
from producer_proxy.journal.journaling import Journaling
from producer_proxy.requests.grouped import GroupedRequests
from producer_proxy.send.results import RETRY_AFTER_MS, SENTENCES
from producer_proxy.send.send import DEFAULT_TIMEOUT_MS, SendService, application_of
from producer_proxy.targets.base import SendTarget
from producer_proxy.targets.engine import EngineTarget
from producer_proxy.targets.engine_topics import DESTINATIONS_MAX, EngineTopics
from producer_proxy.targets.kafka_homes import KafkaHomes
from producer_proxy.targets.kafka_hot import KafkaHotTopics
from producer_proxy.targets.sent import SentReport
from producer_proxy.targets.topics import Targets, Topics
from producer_proxy.topic_figures import TopicFigures

DRAIN_S = 5.0


class ProducerProxy:
    """Serves `send` on the given listeners until `stop()`.

    Args:
        listeners: (socket, ssl_context or None) pairs from common.net.listen.
        view: the configuration.
        brokers: the engine's brokers. Without a fixed one, the proxy follows the broker groups of the configuration.
            Without any, the engine's topics are UNAVAILABLE, and topics with another target are served.
        targets: by topic, of topics that are not the engine's; owned from now on.
        kafka: targets of topics whose home is Kafka; owned from now on. Without it they are UNAVAILABLE.
        store: for the end of fences; without it they stay until an operator removes them.
        journaling: dual writes; owned from now on. Without it topics with a secondary are written to their home alone.
    """

    def __init__(
        self, listeners: list, view: Any, brokers: Brokers, limits: Limits | None = None,
        buffering: Buffering | None = None, targets: Mapping[str, SendTarget] | None = None,
        kafka: KafkaHomes | None = None, store: ConfigStore | None = None, journaling: Journaling | None = None, topic_figures: int = 0,
    ) -> None:  # fmt: skip
        self._limits, self._view, self.brokers = limits or Limits(), view, brokers
        self._clock = SystemClock()
        self.front: Any = None
        self._known = Destinations(DESTINATIONS_MAX)
        brokers.on_change(self._known.clear)
        brokers.on_unknown_id(self._known.discard_id)
        self.buffering = buffering or Buffering({})
        self.buffer = self.buffering.over(view, self._on_diverted, self._on_suspicion)
        self.admission = self._make_admission()
        engine_topics = EngineTopics(view, brokers, self._known, self.buffer, self.admission.fit)
        self._kafka_topics = self._make_kafka_topics(kafka)
        made = journaling or Journaling(None, self._clock.now_ms)
        self.journaling = made.over(view, store, view.own_report.process)
        self.targets = Targets(EngineTarget(brokers, engine_topics), targets, kafka, self.journaling)
        self.topics = Topics(view, self.targets, Fences(view, store, time.monotonic))
        self._make_reports()
        self.drain_switch = DrainSwitch(self)
        self._follow_groups()
        self._principals = Principals(view, self._clock)
        self.requests = GroupedRequests(brokers, self._clock)
        brokers.on_change(self.requests.follow)
        self.service = SendService(
            self._principals, self.topics, self.admission, self.requests, self.buffer, self._clock.now_ms, self._learn
        )
        self.outcomes = self.service.outcomes
        self.front = self._make_front(engine_topics)
        self.figures = self._make_figures(topic_figures)
        self.buffering.start(self.topics)
        self.journaling.start(self.targets)
        self._on_change()
        view.on_change(self._on_change)
        gevent.spawn(view.own_report.repeat)  # the first one was without the sends
        self._ticking = gevent.get_hub().loop.timer(0, TICK_S)
        self._ticking.start(self._tick)
        self.server = serve(
            listeners, self._limits, self.service.handle, prefix_check=self._principals.prefix_verifies,
            make_connection=None if self.front is None else self._hot_connection,
        )  # fmt: skip

    def _make_reports(self) -> None:
        """Numbers that the process's report has beside its version of the configuration."""
        view, report = self._view, self._view.own_report

        def version() -> int:
            return view.version["topic"]

        self._sent = SentReport(lambda: self.targets.marking, version, report.repeat)
        self._copied = CopiedReport(self.journaling, self._sent.numbers, view.topic, version, report.repeat)
        report.add(self._sent.numbers)
        report.add(self._copied.numbers)

    def _make_admission(self) -> SendAdmission:
        queries = EngineQueries(self.brokers, self._known)
        backlogs = TopicBacklogs(queries.backlogs, self._is_at_engine, self._on_backlog)
        return SendAdmission(self._view, queries.lend, lambda: self.brokers.queue_limits, backlogs)

    def _make_kafka_topics(self, kafka: KafkaHomes | None) -> KafkaHotTopics:
        made = KafkaHotTopics(self._view, self._known, self.buffer, self.admission.fit)
        if kafka is not None and Front is not None:
            kafka.serve_hot(made)
        return made

    def _make_front(self, topics: EngineTopics) -> Any:
        if Front is None:
            return None
        sentences = {int(code): sentence.encode() for code, sentence in SENTENCES.items()}

        def is_right(destination: Any) -> bool:
            self.outcomes.follow(destination.name)
            return (topics if destination.lane is None else self._kafka_topics).is_right(destination)

        lanes_by_class = (None, *(self.brokers.lanes[each.lane] for each in CLASSES))
        made = Front(
            lanes_by_class, topics.known, is_right, self._view.generation, self.service.handle, sentences,
            process_bytes(), DEFAULT_TIMEOUT_MS, RETRY_AFTER_MS, self.service.rescue, self.requests,
        )  # fmt: skip
        made.topic_sends = self.outcomes.topics
        return made

    def _make_figures(self, topics_max: int) -> TopicFigures:
        made = TopicFigures(topics_max, lambda topic: self._view.topic(topic) is not None)
        for user in (self.service, self.front):
            if topics_max and user is not None:
                user.figures = made
        return made

    def _hot_connection(self, sock: Any, peer: str, ssl_context: Any) -> Any:
        prefix_check = self._principals.prefix_verifies
        return HotConnection(self.front, sock.detach(), self._limits, peer, ssl_context, prefix_check)

    def _learn(self, credential: bytes, principal: Principal) -> None:
        if self.front is None or len(credential) > REMEMBERED_BYTES_MAX:
            return
        lasts_s = (principal.expires_at_ms - self._clock.now_ms()) / 1000
        meter = self.admission.application(principal.app)
        self.front.admit(
            credential, principal.app, time.monotonic() + lasts_s, principal.send_patterns, meter, principal.origin,
            self.requests.reply_key(principal.app),
        )  # fmt: skip

    def _follow_groups(self) -> None:
        if self.brokers.only is None:
            groups = self._view.broker_groups()
            spared = {group.name for group in groups if group.is_spared}
            self.brokers.follow([(group.name, group.place) for group in groups], self._view.placed_topics, spared)

    def _tick(self) -> None:
        if not self.drain_switch.is_out:  # its quota slices and its static share go to the other proxies
            self.admission.tick()
        self.topics.fences.tick()
        self.outcomes.tick()

    def _on_change(self) -> None:
        self._follow_groups()
        self.admission.follow()
        if self.front is not None:
            takes_replies = "reply" not in self.admission.settings.features_off
            self.front.follow(self._view.generation, self.admission.own, takes_replies)
            self.front.switch_s = self.brokers.switch_s
        self._sent.follow()  # last: from here on nothing is sent by the configuration of before
        self._copied.follow()

    def _is_at_engine(self, topic: str) -> bool:
        """Whether the topic is in use and its messages go to the engine."""
        destination = self._known.get(topic.encode())
        return destination is not None and destination.lane is None

    def _on_backlog(self, topic: str) -> None:
        """Called when the topic's backlog breaker has opened or closed."""
        destination, definition = self._known.get(topic.encode()), self._view.topic(topic)
        if destination is not None and definition is not None:
            self.admission.fit(destination, definition)

    def _on_diverted(self, topic: str, diverted: bool) -> None:
        """Called when the topic gets its first entry in the buffer, or loses its last."""
        destination = self._known.get(topic.encode())
        if destination is not None:
            destination.diverted = diverted

    def _on_suspicion(self, is_suspected: bool) -> None:
        if self.front is not None:
            self.front.divert(is_suspected)

    def connections(self) -> ConnectionList:
        """The clients' connections, for operators. A topic is reached by those whose application may send to it."""

        def use_of(connection: Any) -> ConnectionUse:
            return ConnectionUse(application_of(connection))

        def reaches(use: ConnectionUse, topic: str) -> bool:
            application = self._view.application(use.application) if use.application else None
            return application is not None and application.allows(SEND, topic)

        return ConnectionList(self.server, os.urandom(4).hex(), use_of, reaches)

    @property
    def key_uses(self) -> KeyUses:
        """The last use of each key, as a metric."""
        return self._principals.uses

    @property
    def _is_idle(self) -> bool:
        """Whether every accepted call has its answer."""
        return not self.service.in_work and all(each.idle for each in self.targets.all) and self.requests.is_idle

    def health(self) -> dict:
        """Conditions of /readyz."""
        return {
            **{each.name: each.health() for each in self.targets.all},
            "configuration": config_health(self._view),
            "credentials": self.service.brake.health(),
            "connections": self.server.places.health(),
            "serving": self._is_serving(),
            **self.buffering.health(),
            **self.journaling.health(),
        }

    def _is_serving(self) -> bool | str:
        if self.drain_switch.is_out:
            return OUT_OF_SERVICE
        return not self.service.closing or "stopping"

    def trace(self, spans: SpanQueue) -> None:
        """Trace calls from now on."""
        self.service.spans = spans
        if self.front is not None:
            self.front.trace(self.service.handle_chosen, spans.ratio)

    def drain(self) -> None:
        """Answer SHUTTING_DOWN to further calls. Those in progress end; the fallback buffer goes on to be emptied."""
        self.service.closing = True
        if self.front is not None:
            self.front.stop()

    def undrain(self) -> None:
        """Take calls again."""
        self.service.closing = False
        if self.front is not None:
            self.front.resume()

    def refused_draining(self) -> int:
        """Messages that were answered SHUTTING_DOWN since the start."""
        return self.service.codes.get(Code.SHUTTING_DOWN, 0)

    def left(self) -> dict[str, int]:
        """Entries that the engine, or the secondary of a dual write, does not have yet. The next start goes on with them."""
        rooms = [store.room for store in self.buffering.stores.values()]
        return {
            "buffered": sum(each.entries for each in rooms),
            "buffered_bytes": sum(each.bytes for each in rooms),
            "repairs": self.journaling.backlog.count,
        }

    def stop(self) -> None:
        """Stop accepting, answer SHUTTING_DOWN to further calls, wait for open calls, close.

        Blocks up to DRAIN_S.
        """
        self.server.stop_accepting()
        self.drain()
        deadline = time.monotonic() + DRAIN_S
        while not self._is_idle and time.monotonic() < deadline:
            gevent.sleep(0.005)
        self.requests.release()
        gevent.sleep(0.05)  # time for the last answers, and for SHUTTING_DOWN to clients that call once more
        self._ticking.stop()
        self._sent.close()
        self._copied.close()
        self.requests.close()
        self.server.close()
        self.buffering.stop()
        self.journaling.stop()
        self.targets.close()
