"""The copier of one group on Kafka: one thread and one member for all topics of the group, whatever their number.

It joins again after every error, and when topics come or go. A topic that cannot be read is left out for a while, so that the
others go on; each time it is tried again, the group's members share the partitions anew.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial

from common.clock import Clock
from common.config.definitions import SharedReadDefinition, TopicDefinition
from common.config.errors import ConfigError
from common.kafka.base import ClusterAdmin, ReaderOptions
from common.kafka.errors import KafkaFault, KafkaRefusal, LoginRefused
from common.limited_log import LimitedLog
from engine.link.errors import LinkError
from kafka_bridge.connecting import FollowedConnection
from kafka_bridge.copy_in.cluster import STEP_S_MAX
from kafka_bridge.copy_in.copier import BACKOFF_S, LOGIN_BACKOFF_S, CopyTools, grow_entry
from kafka_bridge.copy_in.engine_queues import EngineQueues
from kafka_bridge.copy_in.plan import CopyPlan
from kafka_bridge.copy_in.run import ENGINE_FAULTS
from kafka_bridge.copy_in.standstills import WHOLE, Standstill, Standstills
from kafka_bridge.heartbeat import Heartbeat
from kafka_bridge.shared_read.draining import note_drained
from kafka_bridge.shared_read.member import GroupMember, TopicFault
from kafka_bridge.shared_read.run import SharedRun
from kafka_bridge.shared_read.tails import LastRecords
from kafka_bridge.shared_read.tallies import SharedTallies

log = logging.getLogger("penstock.kafka_bridge")
limited = LimitedLog(log)
REJOIN_S = 30.0
"""Pause after what only an operator or the cluster can change: each attempt to join disturbs the group's members."""
AGAIN_S = 2.0
"""Pause between two looks at all topics of a group for one whose pause has ended."""
SETTLE_S = 0.5
"""Topics that come within so long, as those of a plan do, join together."""


class SharedTopic:
    """One topic of a group's copier. Without a claim: any number of bridges share the partitions by the group's rebalances.

    Attributes:
        notes: what is not copied now.
        run: its run in the present membership; None: there is none. The copier's thread sets it.
        again_s: monotonic time before which it is left out.
        heart: of its copier.
    """

    is_claimed = True

    def __init__(self, plan: CopyPlan, clock: Clock) -> None:
        self.plan, self.notes, self.tallies = plan, Standstills(clock), SharedTallies()
        self.run: SharedRun | None = None
        self.again_s, self.heart = 0.0, Heartbeat(clock.monotonic_s)
        self._stored = self._skipped = 0
        self._stopping, self.ended = threading.Event(), threading.Event()
        self.on_stop: Callable[[], object] = lambda: None

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
        """A sentence about all that is not copied now."""
        return self.notes.with_silence(self.heart)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """End soon; see `join`."""
        self._stopping.set()
        self.on_stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; False: it has not ended in time."""
        return self.ended.wait(timeout_s)

    def end_run(self) -> None:
        """The run is over; what it has counted is kept."""
        run, self.run = self.run, None
        if run is not None:
            self._stored, self._skipped = self._stored + run.stored, self._skipped + run.skipped
            self.tallies.partitions = 0


class SharedCopier:
    """Begins with its first topic, and ends with its last one."""

    def __init__(self, plan: CopyPlan, tools: CopyTools) -> None:
        assert plan.membership is not None
        self.cluster, self._tools, self._heart = plan.cluster, tools, Heartbeat(tools.clock.monotonic_s)
        self._group, self._begins_at_end = plan.membership.group, plan.membership.begins_at_end
        self._topics: dict[str, SharedTopic] = {}  # by topic of Kafka
        self._changing, self._is_ended = threading.Lock(), False
        self._changed, self._changed_s, self._looked_s = threading.Event(), 0.0, 0.0
        self._thread = threading.Thread(target=self._keep, name=f"group {self._group}", daemon=True)

    @property
    def has_ended(self) -> bool:
        return self._is_ended

    def add(self, topic: SharedTopic) -> bool:
        """Copy a topic; False: this copier has ended, is for another group, or reads its topic of Kafka already."""
        plan = topic.plan
        assert plan.membership is not None
        kind = plan.cluster, plan.membership.group, plan.membership.begins_at_end
        with self._changing:
            is_other = kind != (self.cluster, self._group, self._begins_at_end)
            if self._is_ended or is_other or plan.kafka_topic in self._topics:
                return False
            is_first, topic.heart = not self._topics, self._heart
            self._topics[plan.kafka_topic] = topic
            topic.on_stop = self._changed.set
            self._changed_s = time.monotonic()
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
    def _all(self) -> list[SharedTopic]:
        return [*self._topics.values()]

    def _has_topics(self) -> bool:
        """Let the topics go that are to end; False: that was the last one, and none can be added any more."""
        for each in self._all:
            if each.is_stopping:
                with self._changing:
                    del self._topics[each.plan.kafka_topic]
                each.ended.set()
        with self._changing:
            self._is_ended = not self._topics
        return not self._is_ended

    def _wanted(self) -> set[str]:
        """Topics of Kafka to read now."""
        now_s = time.monotonic()
        return {each.plan.kafka_topic for each in self._all if not each.is_stopping and now_s >= each.again_s}

    def _try(self) -> float:
        """Copy until an error, or other topics; returns the pause before the next try."""
        wanted = self._wanted()
        settling_s = self._changed_s + SETTLE_S - time.monotonic()
        if not wanted or settling_s > 0:
            return settling_s if settling_s > 0 else BACKOFF_S
        try:
            self._copy(wanted)
            return 0.0
        except TopicFault as fault:
            self._leave_out(fault)
            return 0.0
        except (KafkaFault, ConfigError, LinkError, OSError) as fault:
            self._note(wanted, fault)
            return REJOIN_S if isinstance(fault, KafkaRefusal | LoginRefused) else BACKOFF_S
        except Exception as fault:
            limited.exception("group=%s: internal error while copying", self._group)
            self._note(wanted, f"internal error: {fault}")
            return LOGIN_BACKOFF_S

    def _leave_out(self, fault: TopicFault) -> None:
        """The others go on without the topic."""
        if (topic := self._topics.get(fault.topic)) is not None:
            topic.again_s = time.monotonic() + REJOIN_S
            self._note({fault.topic}, fault)

    def _note(self, topics: set[str], fault: object) -> None:
        for each in self._all:
            if each.plan.kafka_topic in topics and each.notes.note(WHOLE, str(fault)):
                limited.warning("topic=%s: the copy stands still: %s", each.plan.topic, fault)

    def _copy(self, wanted: set[str]) -> None:
        groups = self._tools.groups()
        if not groups:
            raise LinkError("no broker group is known")
        tools, kafka = self._tools, FollowedConnection(self.cluster, self._tools.connections)
        topics = [each for each in self._all if each.plan.kafka_topic in wanted]

        def is_ended() -> bool:
            self._heart.beat(allowed_s=STEP_S_MAX)
            return tools.groups() != groups or kafka.is_outdated() or self._has_others(topics, wanted, admin)

        with ExitStack() as stack:
            stack.callback(self._heart.rest)
            self._heart.beat(allowed_s=STEP_S_MAX)
            links = {
                name: stack.enter_context(closing(tools.connect(name, addresses))) for name, addresses in groups.items()
            }
            driver = tools.drivers(self.cluster)
            admin = stack.enter_context(closing(driver.admin(kafka.opened)))
            tails = stack.enter_context(
                closing(LastRecords(admin, lambda: driver.reader(kafka.opened, ReaderOptions())))
            )
            cluster_id = admin.describe().cluster_id
            for each in topics:
                stack.callback(each.end_run)
                plan = each.plan
                queues = EngineQueues(plan.stored, plan.durability, groups, lambda name, _: links[name], plan.ranges)
                grow = partial(self._grow, plan)
                each.run = SharedRun(plan, queues, each.notes, grow, each.tallies, admin, tails, cluster_id)
            member = GroupMember(
                driver, kafka.opened, admin, {each.plan.kafka_topic: each.run for each in topics if each.run}, is_ended,
                lambda: self._is_stopping(topics), partial(self._look_at_drain, admin),
            )  # fmt: skip
            stack.enter_context(closing(member))
            member.run()

    def _has_others(self, topics: Sequence[SharedTopic], wanted: set[str], admin: ClusterAdmin) -> bool:
        """Whether others are to be copied than these: after each change, and every AGAIN_S. Raises KafkaFault."""
        now_s = time.monotonic()
        if not self._changed.is_set() and now_s < self._looked_s + AGAIN_S:
            return False
        self._changed.clear()
        self._looked_s = now_s
        if any(each.is_stopping for each in topics):
            return True
        if now_s < self._changed_s + SETTLE_S:
            self._changed.set()
            return False
        if self._wanted() == wanted:
            return False
        self._put_off(admin)
        return self._wanted() != wanted

    def _put_off(self, admin: ClusterAdmin) -> None:
        """Leave topics out that are missing still: the others need not join again for them. Raises KafkaFault."""
        now_s = time.monotonic()
        due = [name for name, each in self._topics.items() if each.again_s and now_s >= each.again_s]
        for name in {*due} - {*admin.topics(due)} if due else ():
            self._topics[name].again_s = now_s + REJOIN_S

    @staticmethod
    def _is_stopping(topics: Sequence[SharedTopic]) -> bool:
        """Whether the bridge stops, or all of the group's copies end."""
        return all(each.is_stopping for each in topics)

    def _grow(self, plan: CopyPlan, partitions: int) -> None:
        """The topic's own queues follow, too: after the cut, keys go where Kafka's producers have sent them."""
        store, membership = self._tools.store, plan.membership
        grow_entry(store, SharedReadDefinition.kind, plan.topic, partitions)
        if membership is not None:
            grow_entry(store, TopicDefinition.kind, membership.message_topic, partitions)

    def _look_at_drain(self, admin: ClusterAdmin, run: SharedRun) -> None:
        """A fault is left to the next look: the drain is late then, and nothing else."""
        if not run.member.keeps_order:
            return
        try:
            if note_drained(self._tools.store, run.plan, admin, run.queues):
                log.info("topic=%s: Kafka's side is drained: the group reads the engine's", run.plan.topic)
        except (KafkaFault, ConfigError, *ENGINE_FAULTS) as fault:
            log.info("topic=%s: whether Kafka's side is drained is not known: %s", run.plan.topic, fault)


class SharedCopiers:
    """The copiers of one bridge, one per group; one more where a group reads a topic of Kafka for several topics."""

    def __init__(self) -> None:
        self._copiers: list[SharedCopier] = []

    def copy(self, plan: CopyPlan, tools: CopyTools) -> SharedTopic:
        """Begin a copy. For one thread."""
        topic = SharedTopic(plan, tools.clock)
        self._copiers = [each for each in self._copiers if not each.has_ended]
        if not any(each.add(topic) for each in self._copiers):
            made = SharedCopier(plan, tools)
            made.add(topic)
            self._copiers.append(made)
        return topic
