"""A side of a dual write in memory, with faults on demand, and a proxy's dual write over two of them."""

import os
import time
from typing import Any, NamedTuple

import gevent

from common.config import ConfigView
from common.config.definitions import TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Code, Message, encode_struct
from common.ids import IdSource, show_id
from common.keyhash import queue_of
from common.wire.names import find_names
from producer_proxy.journal.divergence import divergence
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.journaling import Journaling
from producer_proxy.targets.base import UNCOUNTABLE, MessageSlice, ResolveError, SendTarget
from producer_proxy.targets.topics import Targets, Topics

QUEUES = 4


class SideDestination(NamedTuple):
    name: str
    queues: int
    durability: int = 1
    grade: int = 1
    id_window_ms: int = 0


class Stored(NamedTuple):
    id: str
    queue: int
    key: Any
    encoded: bytes


class Side(SendTarget):
    """
    Attributes:
        stored: by topic, in the order of arrival.
        code: answered to every message, which is then not stored; None: they are stored.
        stores_anyway: with a code, the messages are stored all the same, as after a lost answer.
        is_hanging: submissions wait for `release()`.
        queues: of every topic. added: of these, partitions that its destinations do not tell yet.
        look_up: code of answers about ids; OK: by what is stored.
    """

    settled_after_s = 0.05

    def __init__(self, name: str) -> None:
        self.name = name
        self.stored: dict[str, list[Stored]] = {}
        self.code: int | None = None
        self.stores_anyway = self.is_hanging = self.is_down = False
        self.queues, self.added, self.look_up = QUEUES, 0, int(Code.OK)
        self.batches: list[list[str]] = []
        self._held: list = []
        self._turn = self.questions = 0

    def resolve(self, definitions, generation, asker):
        if self.is_down:
            raise ResolveError(Code.UNAVAILABLE, f"{self.name} is down")
        return {name: SideDestination(name, self.queues - self.added) for name in definitions}

    def served_as(self, durability):
        return 1

    def admits(self, durability, destination, key, taken, asked):
        return True

    def submit(self, durability, messages, on_outcomes):
        if self.is_hanging:
            self._held.append((list(messages), on_outcomes))
            return True
        self._answer(messages, on_outcomes)
        return True

    def release(self) -> None:
        self.is_hanging = False
        held, self._held = self._held, []
        for messages, on_outcomes in held:
            self._answer(messages, on_outcomes)

    def stored_copies(self, messages, shown_ids, since_ms, deadline_s):
        self.questions += 1
        assert since_ms <= time.time() * 1000
        if self.look_up != Code.OK:
            return [(self.look_up, None, None)] * len(messages)
        found = []
        for message, shown in zip(messages, shown_ids, strict=True):
            there = [each.queue for each in self.stored.get(message.destination.name, ()) if each.id == shown]
            found.append((int(Code.DUPLICATE), there[0], None) if there else (int(Code.OK), None, None))
        return found

    def count_copies(self, messages, shown_ids, since_ms, deadline_s):
        if self.look_up != Code.OK:
            return [UNCOUNTABLE if self.look_up == Code.INVALID else None] * len(messages)
        ids = {each.destination.name: self.ids(each.destination.name) for each in messages}
        return [ids[each.destination.name].count(shown) for each, shown in zip(messages, shown_ids, strict=True)]

    @property
    def up(self):
        return not self.is_down

    @property
    def idle(self):
        return not self._held

    def close(self):
        pass

    def ids(self, topic="t"):
        return [each.id for each in self.stored.get(topic, ())]

    def of_key(self, key: bytes, topic="t"):
        return [each.id for each in self.stored.get(topic, ()) if find_names(each.encoded)[1] == key]

    def _answer(self, messages, on_outcomes):
        self.batches.append([_id_of(each) for each in messages])
        if self.code is None or self.stores_anyway:
            outcomes = [self._store(each) for each in messages]
        if self.code is not None:
            outcomes = [(self.code, None, None, f"{self.name} says {self.code}")] * len(messages)
        on_outcomes(outcomes)

    def _store(self, message: MessageSlice):
        destination, key, _, encoded = message
        self._turn += 1
        queue = key if isinstance(key, int) else self._turn % QUEUES if key is None else queue_of(key, self.queues)
        run = self.stored.setdefault(destination.name, [])
        run.append(Stored(_id_of(message), queue, key, encoded))
        return int(Code.OK), queue, len(run) - 1


def _id_of(message: MessageSlice) -> str:
    if message.assigned_id is not None:
        return show_id(message.assigned_id)
    own = find_names(message.encoded)[0]
    return "" if own is None else own.decode()


class SideHomes:
    """In place of the targets of Kafka clusters: one for each name."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def of(self, cluster, waits=True):
        return self._side

    @property
    def all(self):
        return [self._side]

    def close(self):
        pass


class DualDesk:
    """Topics `t` and `u`, whose home is `engine` and whose secondary is Kafka, over two sides in memory."""

    def __init__(self, directory, has_journal=True, topics=("t", "u"), **options) -> None:
        self.directory, self.options = directory, options
        self.config = MemoryConfigStore()
        for name in topics:
            definition = TopicDefinition(name, queues=QUEUES, secondary="kafka:main", id_window_ms=0)
            self.config.put("topic", name, definition.to_value(), 0)
        self.primary, self.secondary = Side("engine"), Side("kafka:main")
        self.has_journal = has_journal
        self.assign = IdSource(self.now_ms).next
        self.start()

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def start(self) -> None:
        self.view = ConfigView(self.config)
        self.journal = RepairJournal(self.directory, self.now_ms, **self.options) if self.has_journal else None
        self.journaling = Journaling(self.journal, self.now_ms).over(self.view)
        self.targets = Targets(self.primary, kafka=SideHomes(self.secondary), duals=self.journaling)
        self.topics = Topics(self.view, self.targets)
        self.journaling.start(self.targets)

    def kill(self) -> None:
        """End as a killed process does: nothing is written any more, files and lock are released."""
        for pair in self.journaling.pairs.values():
            pair.copies._greenlet.kill(block=True)
        if self.journaling._looking is not None:
            self.journaling._looking.kill()
        self.journal._keeper.kill()
        for segment in self.journal._segments:
            segment.close()
        os.close(self.journal._lock)
        self.view.close()

    def stop(self) -> None:
        self.journaling.stop()
        self.view.close()

    def submit(self, *messages: Message, on_outcomes=None):
        """Submit messages to the dual target; the list that gets their outcomes."""
        routes = self.topics.find([each.topic for each in messages])
        target = routes[messages[0].topic].target
        outcomes: list = []
        slices = [
            MessageSlice(
                routes[each.topic].destination,
                None if each.key is None else each.key.encode(),
                None if each.id is not None else self.assign(),
                encode_struct(each),
            )
            for each in messages
        ]
        target.submit(1, slices, on_outcomes or outcomes.extend)
        return outcomes

    def send(self, count, key="k", topic="t", start=0):
        """Send numbered messages one by one; their ids."""
        names = [f"{topic}-{key}-{number}" for number in range(start, start + count)]
        for name in names:
            self.submit(Message(topic=topic, id=name, key=key, body=name.encode()))
            gevent.sleep(0)
        return names

    @property
    def pair(self):
        (pair,) = self.journaling.pairs.values()
        return pair

    @property
    def is_even(self) -> bool:
        return not self.journaling.backlog.count and self.pair.copies.idle


def soon(condition, what, within_s=20.0):
    with gevent.Timeout(within_s, AssertionError(f"waited {within_s} s in vain: {what}")):
        while not condition():
            gevent.sleep(0.005)  # for the greenlets of the journal


def even(desk):
    soon(lambda: desk.is_even, "both sides to be even")
    soon(lambda: divergence(desk.directory, underway_ms=0).is_empty, "the journal to be empty")
