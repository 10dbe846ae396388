"""A cluster in memory for plans: configuration, proxies, Kafka, engine and copiers, each as dumb as possible.

The proxies keep the rule of the fence, so whether a cut is exact is decided by what the plan's effects do.
"""

import random
from itertools import zip_longest
from types import SimpleNamespace
from uuid import UUID

from common.admin.administrator import Administrator
from common.clock import FakeClock
from common.config.definitions import CopyInDefinition, CopyOutDefinition
from common.config.ended_fences import end_fence, topic_in
from common.config.memory_store import MemoryConfigStore
from common.config.store import SENT
from common.kafka.base import EARLIEST, END, ClusterDescription, KafkaTopic
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition
from engine.client.single_reads import MessageAt
from engine.link.copy import ForeignSource, QueueSource, SourceState
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import note_of
from migration.deployment import Deployment
from migration.entries import PlanStore
from migration.facts import SendErrors
from migration.leftovers import LeftDelayedMessages
from migration.plan import parse_plan
from migration.positions import NO_SOURCE
from migration.run import CourseRun
from migration.states import compared

QUEUES = 2
TEXT = "name: shop\nrecipe: mirror\ncluster: main\ntopics: [orders, pay]\nlimits: {fence_s: 10, soak_hours: 0}\n"
PLACE, TOPIC_ID = EngineTopic("log", 1), UUID(int=7)


class Crash(BaseException):
    """The operator's process dies here."""


class CrashingStore(MemoryConfigStore):
    """Another process's view of the store, which may die before and after every write."""

    def __init__(self, shared, dies) -> None:
        super().__init__(shared)
        self._dies, self.states = dies, []

    def put_many(self, kind, changes, seen=None):
        changes = list(changes)
        self._dies()
        versions = super().put_many(kind, changes, seen)
        self.states += [each.value["state"] for each in changes if kind == "migration"]
        self._dies()
        return versions


class Side:
    """One system's messages by topic and queue."""

    def __init__(self, names) -> None:
        self.messages = {name: [[] for _ in range(QUEUES)] for name in names}

    def ends(self, name):
        return [len(each) for each in self.messages[name]]

    def everything(self, name):
        return [message for queue in self.messages[name] for message in queue]


class Proxy:
    """A producer proxy: applies the configuration late, and answers a send later than it began it."""

    def __init__(self, world, name) -> None:
        self.world, self.name = world, name
        self.definitions, self.version, self.open = {}, {}, []
        self.fences = {}
        self.apply()

    def apply(self) -> None:
        """Take the present configuration and report it."""
        self.version = self.world.store.version()
        self.definitions = self.world.definitions()
        self.report()

    def report(self) -> None:
        topics = self.version["topic"]
        sent = topics if all(at >= topics for at, *_ in self.open) else 0
        self.world.store.report_applied(self.name, {**self.version, SENT: sent})

    def send(self, topic) -> None:
        definition = self.definitions.get(topic)
        if definition is None:
            return
        if definition.fence is not None:
            self.fences.setdefault((topic, definition.fence.id), self.world.clock.monotonic_s())
            return
        side = self.world.engine_side if definition.home == "engine" else self.world.kafka_side
        self.open.append((self.version["topic"], topic, side))

    def settle(self) -> None:
        """Give the oldest send its outcome."""
        if self.open:
            _, topic, side = self.open.pop(0)
            side.messages[topic][self.world.random.randrange(QUEUES)].append(self.world.next_message())
        self.report()

    def expire(self) -> None:
        """End fences whose time is over."""
        for (topic, id_), seen_s in list(self.fences.items()):
            fence = self.world.definitions()[topic].fence
            if fence is None or fence.id != id_:
                del self.fences[topic, id_]
            elif (self.world.clock.monotonic_s() - seen_s) * 1000 >= fence.for_ms:
                end_fence(self.world.proxy_store, topic, fence)


class NoMarks:
    """A reader of partitions whose records tell nothing about copies."""

    def __init__(self, world) -> None:
        self.world, self.assigned = world, {}

    def assign(self, positions) -> None:
        self.assigned = positions

    def positions(self):
        return self.world.offsets(self.assigned, END)

    def resume(self, partitions) -> None:
        """Nothing is paused."""

    def poll(self, wait_s):
        return []

    def close(self) -> None:
        """Nothing is open."""


class Operator(CourseRun):
    """An operator's process, which compares the sides after `verify` and finds them equal."""

    def run(self, command):
        super().run(command)
        if command == "verify":
            self.entry = self._plans.write(self.entry, compared(self.entry.state, 0), "compared")


class World:
    """
    Attributes:
        dies: called around each write of the operator's process; raises Crash.
        proxy_store: of the proxies; with an odd seed they may not change definitions.
    """

    proxy_class = Proxy

    def __init__(self, seed=0, dies=lambda: None, text=TEXT) -> None:
        self.random, self.clock = random.Random(seed), FakeClock()
        self._known, self.partitions = None, QUEUES
        self.store, self.proxy_store, self.operator_store = self.open_stores(seed, dies)
        self.plan = parse_plan(text, "plan")
        self.kafka_side, self.engine_side = Side(self.plan.topic_names), Side(self.plan.topic_names)
        self.kafka_side.messages = {name: [[0], []] for name in self.plan.topic_names}  # older than the plan
        self.copied = {name: [0] * QUEUES for name in self.plan.topic_names}
        self.copied_ends = {name: [0] * QUEUES for name in self.plan.topic_names}
        self.returned = {}
        self.own = self.rebased = 0
        self.proxies = [self.proxy_class(self, f"producer_proxy@{n}/host") for n in range(2)]
        self.progress, self.is_busy = [], True
        self.bypasses = False
        self.delayed, self.dead = {}, {}
        self.kafka_groups, self.unreadable_groups = {}, ()
        """By name: state, the topic of its position, the topic that its members read."""
        self.kafka_ids, self.kafka_starts, self.policies = {}, {}, {}
        self.send_errors, self.tails = SendErrors(), None

    def open_stores(self, seed, dies):
        store = MemoryConfigStore()
        return store, store.peer(is_reader=seed % 2 == 1), CrashingStore(store._shared, dies)

    def next_message(self) -> int:
        self.own += 1
        return self.own

    def definitions(self):
        index = tuple(self.store.index("topic")), tuple(self.store.index("ended_fence"))
        if self._known is None or self._known[0] != index:
            self._known = index, self._read_definitions()
        return dict(self._known[1])

    def _read_definitions(self):
        return {name: found for name in self.store.names("topic") if (found := topic_in(self.store, name)) is not None}

    def home(self, name):
        found = self.store.get("topic", name)
        return found.value["home"] if found and "home" in found.value else "engine" if found else ""

    def dead_letters(self, topics, groups):
        return {name: each for name, each in self.dead.items() if name in topics}

    # The part of ClusterAdmin and of EnginePositions that a plan asks.

    def topics(self, names):
        ids = {name: self.kafka_ids.get(name, TOPIC_ID) for name in names if name in self.kafka_side.messages}
        return {name: KafkaTopic(name, each, self.partitions, 3) for name, each in ids.items() if each is not None}

    def describe(self):
        return ClusterDescription("cluster", 1, ())

    def configs(self, names):
        return {
            name: {"max.message.bytes": "1048588", "cleanup.policy": self.policies.get(name, "delete")}
            for name in names
        }

    def offsets(self, partitions, at):
        if at == EARLIEST:
            return {each: self.kafka_starts.get(each, 0) for each in partitions}
        return {Partition(*each): self.kafka_side.ends(each[0])[each[1]] for each in partitions}

    def committed(self, group, partitions=None):
        return {Partition(*key): CommittedPosition(at, note_of(PLACE, TOPIC_ID)) for key, at in self.returned.items()}

    def groups(self):
        return {name: state for name, (state, _, _) in self.kafka_groups.items()}

    def committed_on(self, groups, topics):
        found = {name: self.kafka_groups[name][1] for name in groups if name in self.kafka_groups}
        return {name: {Partition(topic, 0): 3} for name, topic in found.items() if topic in topics}

    def not_joinable(self, groups):
        return [name for name in groups if name in self.unreadable_groups]

    def subscribed(self, groups):
        return {name: {self.kafka_groups[name][2]} for name in groups}

    def close(self) -> None:
        """Nothing is open."""

    def delete_groups(self, groups):
        assert groups == ["penstock.copy.shop"]
        self.returned = {}

    def places(self, topic, rows):
        return {Partition(topic.name, queue): PLACE for queue, _ in enumerate(rows)}

    def copied_rows(self, topics):
        return {each.name: [*self._rows(each.name)] for each in topics}

    def _rows(self, name):
        for queue, (at, end) in enumerate(zip(self.copied[name], self.copied_ends[name], strict=True)):
            source = ForeignSource(b"cluster/" + TOPIC_ID.hex.encode(), queue)
            yield NO_SOURCE if at is None else SourceState(1, 1, at, end, [QueueSource(1, source, 0, 0, 0, "")])
        added = self.definitions()[name].queues - len(self.copied[name]) if name in self.definitions() else 0
        yield from [NO_SOURCE] * added

    def backlog(self, topic, group) -> int:
        raise AssertionError("only a double read asks for it")

    def engine_ends(self, topic):
        return dict(enumerate(self.engine_side.ends(topic.name)))

    def rebase(self, topic, sources, ends, reason) -> None:
        before = self.copied[topic.name]
        assert len(sources) == len(ends) >= len(before)
        self.rebased += 1
        rows = zip_longest(before, ends)
        self.copied[topic.name] = [
            max(at or 0, end) or at for at, end in rows
        ]  # None: no source, as no record has come
        added = [len(each) for each in self.engine_side.messages[topic.name]][len(before) :]
        self.copied_ends[topic.name] += added

    def copy_in(self, name) -> None:
        """One step of the copier from Kafka; it skips what the reverse copy has written."""
        has_entry = self.store.get(CopyInDefinition.kind, name) is not None
        if has_entry or self.home(name) == "kafka:main":
            for queue in range(QUEUES):
                source, at = self.kafka_side.messages[name][queue], self.copied[name][queue]
                for message in source[at : at + self.random.randrange(4)]:
                    self.copied[name][queue] += 1
                    if not isinstance(message, tuple):
                        self.engine_side.messages[name][queue].append(("copied", message))
                        self.copied_ends[name][queue] = len(self.engine_side.messages[name][queue])

    def copy_out(self, name) -> None:
        if self.store.get(CopyOutDefinition.kind, name) is None:
            return
        firsts = self.definitions()[name].cut.engine_firsts
        for queue in range(QUEUES):
            messages, at = self.engine_side.messages[name][queue], self.returned.get((name, queue), firsts[queue])
            for message in messages[at : at + self.random.randrange(4)]:
                at += 1
                if not isinstance(message, tuple):
                    self.kafka_side.messages[name][queue].append(("returned", message))
            self.returned[name, queue] = at

    def turn(self, seconds=0.1) -> None:
        """A moment in which all but the operator go on a little."""
        self.clock.advance(int(seconds * 1000))
        for name in self.plan.topic_names:
            if self.is_busy and self.random.random() < 0.5:
                self.random.choice(self.proxies).send(name)
            if self.bypasses and self.random.random() < 0.3:
                self.kafka_side.messages[name][0].append(self.next_message())
            self.copy_in(name)
            self.copy_out(name)
        for proxy in self.proxies:
            if self.random.random() < 0.6:
                proxy.settle()
            if self.random.random() < 0.5:
                proxy.apply()
            proxy.expire()

    def run(self, accepted=()) -> "SimpleNamespace":
        """The operator's process: `run(command)` and `resume()` on the plan."""
        admin = Administrator(self.operator_store, "cli:test@desk", self.clock)
        plans = PlanStore(self.operator_store, self.clock, admin.who)
        engine = SimpleNamespace(
            copied=self.copied_rows,
            ends=self.engine_ends,
            rebase=self.rebase,
            places=self.places,
            backlog=self.backlog,
            last_copied=lambda topic, rows: {},
            message_at=lambda topic, queue, offset: MessageAt(None, is_deleted=True),
            delayed=lambda topic: self.delayed.get(topic, LeftDelayedMessages(0, 0)),
            dead_letters=self.dead_letters,
        )
        deployment = Deployment(
            admin,
            self.plan,
            lambda: self,
            engine,
            self.progress.append,
            tails=self.tails,
            send_errors=lambda store, names: self.send_errors,
            open_reader=lambda: NoMarks(self),
            open_groups=lambda: self,
        )
        entry = plans.read("shop")
        return Operator(
            deployment, plans, entry, self.clock, frozenset(accepted), self.turn, self.progress.append
        )  # fmt: skip

    def add_plan(self):
        return PlanStore(self.store, self.clock, "cli:test@desk").add(self.plan)

    @property
    def state(self):
        return PlanStore(self.store, self.clock, "cli:test@desk").read("shop").state
