"""The copier of one Kafka cluster: one thread and one set of clients for all of its topics, whatever their number.

It begins again after every error of the cluster; an error of one topic makes that topic stand still.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial

from common.clock import Clock
from common.config.definitions import KafkaClusterDefinition, TopicDefinition
from common.config.errors import ConfigError, StoreUnavailable
from common.kafka.errors import KafkaFault, LoginRefused
from common.limited_log import LimitedLog
from engine.client.blocking import LeadingLink
from engine.link.errors import LinkError
from kafka_bridge.connecting import FollowedConnection
from kafka_bridge.copy_in.copier import BACKOFF_S, CLAIM_S, LOGIN_BACKOFF_S, CopyTools, grow_entry
from kafka_bridge.copy_in.engine_queues import EngineQueues, Groups
from kafka_bridge.copy_in.plan import CopyPlan
from kafka_bridge.copy_in.run import TopicRun
from kafka_bridge.copy_in.session import ClusterSession
from kafka_bridge.copy_in.standstills import WHOLE, Standstill, Standstills
from kafka_bridge.heartbeat import Heartbeat

STEP_S_MAX = 30.0
"""A step that takes longer is told. One begins partitions of many topics, each of which waits for the engine's disk."""
log = logging.getLogger("penstock.kafka_bridge")
limited = LimitedLog(log)
REFUSED_CLAIMS_MAX = 50
"""Tries per CLAIM_S for claims that other bridges hold. A claim that is won does not count, so all topics of a bridge that
has ended are taken over in one go once the first one is."""


class ClusterTopic:
    """One topic of a cluster's copier: what is asked for, and what the operator's pages show.

    Attributes:
        is_claimed: whether this process copies the topic; otherwise another bridge does.
        notes: what is not copied now.
        run: its run in the present session; None: there is none. The copier's thread sets it.
        heart: of its copier.
    """

    def __init__(self, plan: CopyPlan, clock: Clock) -> None:
        self.plan, self.notes = plan, Standstills(clock)
        self.heart = Heartbeat(clock.monotonic_s)
        self.is_claimed = False
        self.run: TopicRun | None = None
        self._stored = self._skipped = 0
        self._stopping, self.ended = threading.Event(), threading.Event()

    @property
    def stored(self) -> int:
        """Records stored since the bridge began to copy the topic."""
        run = self.run
        return self._stored + (run.stored if run else 0)

    @property
    def skipped(self) -> int:
        """Records left out since then, because they come from the topic itself."""
        run = self.run
        return self._skipped + (run.skipped if run else 0)

    @property
    def standstills(self) -> list[Standstill]:
        """A sentence about all that is not copied now; empty also while another bridge has the copy."""
        return self.notes.with_silence(self.heart) if self.is_claimed else self.notes.all

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """End soon; see `join`."""
        self._stopping.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; False: it has not ended in time."""
        return self.ended.wait(timeout_s)

    def end_run(self) -> None:
        """The run is over; what it has counted is kept."""
        run, self.run = self.run, None
        if run is not None:
            self._stored, self._skipped = self._stored + run.stored, self._skipped + run.skipped


class ClusterCopier:
    """Begins at once, and ends with its last topic."""

    def __init__(self, cluster: KafkaClusterDefinition, tools: CopyTools) -> None:
        self.cluster, self._tools, self._heart = cluster, tools, Heartbeat(tools.clock.monotonic_s)
        self._topics: dict[str, ClusterTopic] = {}  # by topic of Kafka
        self._changing, self._is_ended = threading.Lock(), False
        self._changed = threading.Event()
        self._claimed_s, self._turn = 0.0, 0
        self._thread = threading.Thread(target=self._keep, name=f"copy {cluster.name}", daemon=True)

    @property
    def has_ended(self) -> bool:
        return self._is_ended

    def add(self, topic: ClusterTopic) -> bool:
        """Copy a topic; False: this copier has ended, or copies its topic of Kafka into another one."""
        with self._changing:
            if self._is_ended or topic.plan.kafka_topic in self._topics:
                return False
            is_first, topic.heart = not self._topics, self._heart
            self._topics[topic.plan.kafka_topic] = topic
        if is_first:
            self._thread.start()
        self._changed.set()
        return True

    # --- In the copier's thread.

    def _keep(self) -> None:
        while self._has_topics():
            if pause_s := self._try():
                self._changed.wait(pause_s)
            self._changed.clear()

    @property
    def _all(self) -> list[ClusterTopic]:
        return [*self._topics.values()]

    def _has_topics(self) -> bool:
        """Let the topics go that are to end; False: that was the last one, and none can be added any more."""
        for each in self._all:
            if each.is_stopping:
                each.end_run()
                each.is_claimed = False
                with suppress(ConfigError, OSError):
                    self._tools.store.release(each.plan.claim)
                with self._changing:
                    del self._topics[each.plan.kafka_topic]
                each.ended.set()
        with self._changing:
            self._is_ended = not self._topics
        return not self._is_ended

    def _try(self) -> float:
        """Copy until an error of the cluster, or a change; returns the pause before the next try."""
        try:
            self._claim()
            if not any(each.is_claimed for each in self._all):
                return CLAIM_S
            self._copy()
            return 0.0
        except (KafkaFault, ConfigError, LinkError, OSError) as fault:
            self._note(str(fault))
            return LOGIN_BACKOFF_S if isinstance(fault, LoginRefused) else BACKOFF_S
        except Exception as fault:
            limited.exception("kafka=%s: internal error while copying", self.cluster.name)
            self._note(f"internal error: {fault}")
            return LOGIN_BACKOFF_S

    def _note(self, sentence: str) -> None:
        is_new = [each.notes.note(WHOLE, sentence) for each in self._all if each.is_claimed]
        if any(is_new):
            limited.warning(
                "kafka=%s: the copies of %d topics stand still: %s", self.cluster.name, len(is_new), sentence
            )

    def _claim(self) -> None:
        """Claim topics. While the store is away they are copied without: a lost claim costs work, never exactness."""
        store, refused, is_away = self._tools.store, 0, False
        topics = self._all
        self._turn += 1
        for at in range(len(topics)):
            each = topics[(at + self._turn) % len(topics)]
            if each.is_claimed and (store.holds(each.plan.claim) or store.unavailable_since_ms is not None):
                continue
            if refused >= REFUSED_CLAIMS_MAX:
                each.is_claimed = False
                continue
            try:
                each.is_claimed = is_away or store.claim(each.plan.claim)
            except StoreUnavailable as error:
                limited.warning("kafka=%s: topics are copied without claims: %s", self.cluster.name, error)
                each.is_claimed = is_away = True  # one question that is not answered, not one per topic
            if not each.is_claimed:
                refused += 1
                each.notes.clear(WHOLE)

    def _copy(self) -> None:
        groups = self._tools.groups()
        if not groups:
            raise LinkError("no broker group is known")
        tools, kafka = self._tools, FollowedConnection(self.cluster, self._tools.connections)
        with ExitStack() as stack:
            stack.callback(self._heart.rest)
            self._heart.beat(allowed_s=STEP_S_MAX)
            links = {
                name: stack.enter_context(closing(tools.connect(name, addresses))) for name, addresses in groups.items()
            }
            session = stack.enter_context(closing(ClusterSession(tools.drivers(self.cluster), kafka.opened, links)))
            try:
                while self._has_topics() and tools.groups() == groups and not kafka.is_outdated():
                    if self._is_claim_due():
                        self._claim()
                    self._follow(session, groups, links)
                    session.step()
                    self._heart.beat(allowed_s=STEP_S_MAX)
            finally:
                for each in self._all:
                    each.end_run()

    def _is_claim_due(self) -> bool:
        now_s = self._tools.clock.monotonic_s()
        if now_s < self._claimed_s + CLAIM_S:
            return False
        self._claimed_s = now_s
        return True

    def _follow(self, session: ClusterSession, groups: Groups, links: Mapping[str, LeadingLink]) -> None:
        """Begin the runs of topics that this bridge has claimed, and end those of others."""
        wanted = {each.plan.kafka_topic: each for each in self._all if each.is_claimed}
        for kafka_topic in session.topics:
            topic = wanted.get(kafka_topic)
            if topic is None or topic.run is None:
                session.remove(kafka_topic)
        for each in self._all:
            if each.is_claimed and each.run is None:
                plan = each.plan
                queues = EngineQueues(plan.stored, plan.durability, groups, lambda name, _: links[name], plan.ranges)
                each.run = TopicRun(plan, session.cluster_id, queues, each.notes, self._grower(plan.topic))
                session.add(each.run)
            elif not each.is_claimed and each.run is not None:
                each.end_run()

    def _grower(self, topic: str) -> Callable[[int], None]:
        """Makes the topic's definition have at least so many queues. Raises ConfigError."""
        return partial(grow_entry, self._tools.store, TopicDefinition.kind, topic)


class ClusterCopiers:
    """The copiers of one bridge, one per cluster; one more where a topic of Kafka is copied into several topics."""

    def __init__(self) -> None:
        self._copiers: list[ClusterCopier] = []

    def copy(self, plan: CopyPlan, tools: CopyTools) -> ClusterTopic:
        """Begin a copy. For one thread."""
        topic = ClusterTopic(plan, tools.clock)
        self._copiers = [each for each in self._copiers if not each.has_ended]
        if not any(each.cluster == plan.cluster and each.add(topic) for each in self._copiers):
            made = ClusterCopier(plan.cluster, tools)
            made.add(topic)
            self._copiers.append(made)
        return topic
