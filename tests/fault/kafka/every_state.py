"""A broker that others change and a Penstock with topics in each state between the steps of plans, for tests that walk the
table of docs/design/0046-outside-changes.md: one topic per state and change.
"""

import shutil
import signal
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from bench.peers.kafka_node import format_line, new_cluster_id
from common.config import open_store
from common.kafka.base import NewKafkaTopic
from common.names import stored_name
from engine.client.admin import AdminClient
from engine.link.operations import READ
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import read_record
from kafka_bridge.mapping import fields_of
from penstock.up.directory import ADMIN_KEY
from tests.e2e.kafka.home import Puller
from tests.fault.kafka.test_shapes_and_positions import FOLLOWED_S_MAX, Changing
from tests.services.kafka_classes import HEAP
from tests.waiting import until

MIRROR, HOME, DUAL, SWAPPED, BACK, READ_BOTH = STATES = ("mirror", "home", "dual", "swapped", "back", "read")
"""Copied into the engine; with its home in Kafka; a double write before its cut, and behind it; a mirror behind its cut, which
is copied back; and read on both sides by a group.
"""
FROM_KAFKA = (MIRROR, READ_BOTH)
"""States in which the writers are beside the proxies."""
GROUP = "readers"
PLAN = """\
name: {name}
recipe: {recipe}
order: {order}
cluster: main
topics: [{topics}]
gates: {{error_rate: 1}}
limits: {{fence_s: 60, soak_hours: 0}}
"""
AT_ONCE = 3
"""Plans that are led to their states at the same time."""
WAYS = {
    MIRROR: ("mirror", ("start",)),
    DUAL: ("double_write", ("start", "verify")),
    SWAPPED: ("double_write", ("start", "verify", "cut")),
    BACK: ("mirror", ("start", "verify", "cut", "soak")),
    READ_BOTH: ("double_read", ("start",)),
}
"""By state: the recipe of its plan, and the commands that lead there. A topic's home needs no plan."""
FIRST = 10


def topic(state, change) -> str:
    return f"{state}-{change}"


class Restorable(Changing):
    """A broker and an engine whose data can be put back."""

    @contextmanager
    def bridge_stopped(self):
        self.penstock.kill("kafka_bridge", signal.SIGSTOP)
        try:
            yield
        finally:
            self.penstock.kill("kafka_bridge", signal.SIGCONT)

    @contextmanager
    def kafka_away(self):
        """Its data, while it is stopped."""
        self.brokers.shut_down(1)
        yield self.folder / "kafka" / "node-1" / "data-1"
        self.brokers.restart(1)

    @contextmanager
    def penstock_away(self):
        """The engine's data, while all of Penstock is stopped."""
        assert self.penstock.stop() == 0, self.penstock.told()
        yield self.folder / "data" / "engine"
        self.penstock.start()

    def keep(self, data) -> None:
        shutil.copytree(data, self.folder / f"kept-{data.name}", dirs_exist_ok=True)

    def put_back(self, data) -> None:
        shutil.rmtree(data)
        shutil.copytree(self.folder / f"kept-{data.name}", data)


class EveryState(Restorable):
    """
    Attributes:
        sent: by topic, the ids of what was answered OK.
        got: by topic, the ids of what the group has got.
    """

    def reach(self, plans) -> "EveryState":
        """Lead one topic per state and change to its state, with messages that are on both sides.

        Args:
            plans: per plan its state, and the changes of its topics.
        """
        pairs = [(state, change) for state, *changes in plans for change in changes]
        self.sent = {topic(*each): [] for each in pairs}
        self.got = {each: [] for each in self.sent}
        self.penstock.run("group", "create", GROUP, "--order", "key")
        copies = min(len(self.brokers.nodes), 2)
        assert self.admin.create_topics(dict.fromkeys(self.sent, NewKafkaTopic(1, copies))) == {}
        until(lambda: len(self.admin.topics([*self.sent])) == len(self.sent), "the topics", 60.0)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            [*pool.map(lambda plan: self._reach(*plan), plans)]
        for state, change in pairs:
            self.fill(change, "first", FIRST, (state,))
        for state, change in pairs:
            self.check(change, (state,))
        return self

    def _reach(self, state, *changes) -> None:
        topics = [topic(state, change) for change in changes]
        if state == HOME:
            for each in topics:
                line = ("--home", "kafka:main", "--queues", "1", "--accept", "lone-replica")
                self.penstock.run("topic", "create", each, *line)
            return
        recipe, way = WAYS[state]
        order = "per_proxy" if recipe == "double_write" else "strict"
        text = PLAN.format(name=topics[0], recipe=recipe, order=order, topics=", ".join(topics))
        path = self.folder / f"{topics[0]}.yaml"
        path.write_text(text + f"groups: [{GROUP}]\n" * (state == READ_BOTH))
        self.migrate("plan", str(path), "--accept", "lone-replica")
        self.way(topics[0], *way)

    def refused(self, state, change, command, *accepted) -> str:
        """The sentence by which a command of the plan whose first topic that is, is refused."""
        return self.migrate(
            command, topic(state, change), *[part for each in accepted for part in ("--accept", each)], code=4
        )  # fmt: skip

    # --- Messages.

    def fill(self, change, prefix, count, states) -> None:
        """Messages of the writers of each state: they are to be on both sides once."""
        for state in states:
            name = topic(state, change)
            self.sent[name] += (self.produce if state in FROM_KAFKA else self.send)(name, prefix, count)

    def check(self, change, states) -> None:
        """Everything that was sent is on both sides once; the group has got it once."""
        for state in states:
            name = topic(state, change)
            if state == READ_BOTH:
                self.pull_all(name)
            else:
                self.wait_same(name, self.sent[name])

    def pull_all(self, name, again=()) -> None:
        """Wait until the group has got everything, and nothing twice but `again`."""
        with closing(Puller(self, GROUP)) as puller:

            def has_all():
                self.got[name] += [each.message.id for each in puller.pull(name, wait_ms=100)]
                return Counter(self.got[name]) >= Counter([*self.sent[name], *again])

            until(has_all, f"the group has got all of {name}", FOLLOWED_S_MAX)
            has_all()
        assert sorted(self.got[name]) == sorted([*self.sent[name], *again])

    def engine_ids(self, topic):
        """As of its base class, over one link: without a command per page."""
        return sorted(self.engine_order(topic))

    def engine_order(self, topic):
        """Ids of all messages of the only queue, in its order."""
        if not (made := self._made_ms(topic)):
            return []
        secret = (self.penstock.data / ADMIN_KEY).read_bytes().strip()
        with AdminClient(self.penstock.engine, secret) as link:
            return ids_in(link, stored_name(topic, made))

    def _made_ms(self, topic):
        with closing(open_store((self.penstock.data / "config").as_uri())) as store:
            found = store.get("topic", topic)
        return found.value.get("made_ms") if found is not None else None

    def is_told(self, *words) -> None:
        """Wait until /readyz of the bridge has these words in one note."""
        until(lambda: all(each in self.notes() for each in words), f"/readyz tells {words}", FOLLOWED_S_MAX)

    # --- Changes of whole systems.

    @contextmanager
    def another_cluster(self, topics):
        """A cluster with another id and these topics, at the same address."""
        away = self.folder / "away"
        with self.kafka_away() as data:
            data.rename(away)
            folder = data.parent
            line = format_line(folder, folder / "server.properties", new_cluster_id(), HEAP)
            subprocess.run(line, cwd=folder, check=True, capture_output=True)
        for topic in topics:
            self.create(topic)
        yield
        with self.kafka_away() as data:
            shutil.rmtree(data)
            away.rename(data)


def ids_in(link, stored, queue=0):
    """Ids of all messages of a queue."""
    found = []
    while True:
        question = ReadQuestion([ReadPosition(stored, queue, offset=len(found))], 2_000, 1 << 20)
        _, payload = link.call(READ, question.encode())
        before = len(found)
        for piece in ReadAnswer.decode(payload).pieces() if payload else []:
            at = 0
            while at < len(piece.records):
                record, at = read_record(piece.records, at)
                texts, _ = fields_of(record.message)
                found.append(record.assigned_id.hex() if record.assigned_id else texts[6].decode())
        if len(found) == before:
            return found
