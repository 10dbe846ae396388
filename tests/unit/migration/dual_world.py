"""A cluster in memory whose proxies write to both sides: journals that are late, and a bridge that follows late."""

from itertools import chain

from common.config.definitions.copies import copy_in_claim
from common.config.errors import VersionConflict
from common.config.store import COPIED, JOURNAL
from tests.unit.migration.world import QUEUES, TEXT, Proxy, World

DUAL_TEXT = TEXT.replace("recipe: mirror", "recipe: double_write\norder: per_proxy")


class DualProxy(Proxy):
    """Keeps what the secondary lacks in a journal, and says so.

    Attributes:
        has_journal: whether it was started with one.
        repairs: whether the secondary takes anything.
    """

    def __init__(self, world, name) -> None:
        self.journal, self.has_journal, self.repairs, self.is_alive = [], True, True, True
        super().__init__(world, name)

    def report(self) -> None:
        super().report()
        fenced = {name for name, each in self.definitions.items() if each.fence is not None}
        held = {topic for topic, *_ in self.journal} | {topic for _, topic, _ in self.open}
        copied = (
            0 if held & fenced or self.world.store.applied()[self.name].version["sent"] == 0 else self.version["topic"]
        )
        report = self.world.store.applied()[self.name].version
        self.world.store.report_applied(self.name, {**report, COPIED: copied, JOURNAL: int(self.has_journal)})

    def send(self, topic) -> None:
        definition = self.definitions.get(topic)
        if definition is None or not definition.secondary or definition.fence is not None:
            super().send(topic)
            return
        self.tell()
        sides = [self.world.engine_side, self.world.kafka_side]
        self.open.append((self.version["topic"], topic, sides if definition.home == "engine" else sides[::-1]))

    def settle(self) -> None:
        if self.open and isinstance(self.open[0][2], list):
            _, topic, (primary, secondary) = self.open.pop(0)
            queue, message = self.world.random.randrange(QUEUES), self.world.next_message()
            primary.messages[topic][queue].append(message)
            self.journal.append((topic, queue, message, secondary))
            self.report()
        else:
            super().settle()

    def copy(self) -> None:
        """Bring the oldest message of the journal to its secondary."""
        if self.journal and self.repairs:
            topic, queue, message, secondary = self.journal.pop(0)
            secondary.messages[topic][queue].append(message)
            self.report()
            self.tell()

    def tell(self) -> None:
        """Write the journal's entry."""
        topics: dict = {}
        for topic, queue, message, _ in self.journal:
            told = topics.setdefault(topic, {"messages": 0, "ids": []})
            told["messages"] += 1
            told["ids"] = [*told["ids"], [queue, str(message)]][:3]
        value = {"process": self.name, "directory": "/journal", "topics": topics}
        found = self.world.store.get("journal", self.name.replace("/", "."))
        self.world.store.put("journal", self.name.replace("/", "."), value, found.version if found else 0)

    def die(self) -> None:
        """End as a killed process does: its journal stays, its report goes."""
        self.is_alive = False
        self.world.store.forget(self.name)


class Bridge:
    """Copies topics at home in Kafka that have no secondary; applies the configuration late and ends its copies later."""

    def __init__(self, world) -> None:
        self.world, self.store = world, world.store.peer()
        self.wanted, self.running = set(), set()
        self.apply()

    def apply(self) -> None:
        found = self.world.definitions().items()
        self.wanted = {name for name, each in found if each.home == "kafka:main" and not each.secondary}
        self.store.report_applied("kafka_bridge@0/host", self.world.store.version())

    def adapt(self) -> None:
        """Begin or end one copy."""
        for name in sorted(self.running ^ self.wanted)[:1]:
            claim = copy_in_claim("main", name, name)
            if name in self.running:
                self.running.discard(name)
                self.store.release(claim)
            elif self.store.claim(claim):
                self.running.add(name)


class DualWorld(World):
    proxy_class = DualProxy

    def __init__(self, seed=0, dies=lambda: None, text=DUAL_TEXT) -> None:
        super().__init__(seed, dies, text)
        self.bridge = Bridge(self)

    def copy_in(self, name) -> None:
        if name in self.bridge.running:
            for queue in range(QUEUES):
                source, at = self.kafka_side.messages[name][queue], self.copied[name][queue]
                for message in source[at : at + self.random.randrange(4)]:
                    self.copied[name][queue] += 1
                    self.engine_side.messages[name][queue].append(("copied", message))
                    self.copied_ends[name][queue] = len(self.engine_side.messages[name][queue])

    def turn(self, seconds=0.1) -> None:
        proxies = self.proxies
        self.proxies = [each for each in proxies if each.is_alive]
        super().turn(seconds)
        for proxy in self.proxies:
            if self.random.random() < 0.7:
                proxy.copy()
        self.proxies = proxies
        if self.random.random() < 0.5:
            self.bridge.apply()
        if self.random.random() < 0.5:
            self.bridge.adapt()

    def rest(self) -> None:
        """Let everything that was begun come to its end, without further sends."""
        self.is_busy = False
        for _ in range(2_000):
            self.turn()
            is_open = any(each.open or each.journal for each in self.proxies)
            is_behind = any(
                name in self.bridge.wanted and self.copied[name] != self.kafka_side.ends(name)
                for name in self.plan.topic_names
            )
            if not is_open and not is_behind and self.bridge.wanted == self.bridge.running:
                self.is_busy = True
                return
        raise AssertionError("it does not come to rest")

    def sides(self, name):
        """What each side has of a topic, by queue."""
        engine = [[each[1] if isinstance(each, tuple) else each for each in queue] for queue in self._engine(name)]
        return self.kafka_side.messages[name], engine

    def _engine(self, name):
        return self.engine_side.messages[name]

    def assert_even(self) -> None:
        """Both sides have the same messages, each once, unless the engine has the topic alone."""
        self.rest()
        for name, definition in self.definitions().items():
            kafka, engine = self.sides(name)
            for queue in (*kafka, *engine):
                assert len(queue) == len(set(queue)), f"{name}: a message is doubled"
            if definition.home != "engine" or definition.secondary:
                assert [sorted(each) for each in kafka] == [sorted(each) for each in engine], (
                    f"{name}: a side lacks some"
                )
            else:
                assert {*chain(*kafka)} <= {*chain(*engine)}, f"{name}: the engine lacks some"

    def change(self, name, **fields) -> None:
        """Write fields of a topic's entry."""
        found = self.store.get("topic", name)
        try:
            self.store.put("topic", name, {**found.value, **fields}, found.version)
        except VersionConflict:
            self.change(name, **fields)
