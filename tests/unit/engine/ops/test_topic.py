"""TOPIC and the admin verb `topics`: an id leaves the engine only once a power cut cannot take it back."""

import json

import pytest

from engine.config import LogConfig
from engine.delivery.creations import NO_LIMITS, Creations
from engine.env.simulated import SimulatedEnv
from engine.errors import QuotaError
from engine.link import layout
from engine.link.pull import encode_pull
from engine.link.topic import encode_topics
from engine.log import open_log
from engine.ops.topic import CreateTopics
from tests.sim.world import World
from tests.unit.engine.test_node import Desk


class HeldLog:
    """A log whose syncs last until the test ends them."""

    def __init__(self) -> None:
        self.log = open_log(SimulatedEnv(), "/engine", LogConfig(segment_bytes=1 << 20))
        self.create_topics = self.log.create_topics
        self.waiting = []

    @property
    def topics_position(self) -> int:
        return self.log.topics_position

    def when_durable(self, position, callback) -> None:
        if position <= self.log.durable_position:
            callback()
        else:
            self.waiting.append((position, callback))

    def sync(self) -> None:
        self.log.when_durable(self.log.end_position, lambda: None)
        waiting, self.waiting = self.waiting, []
        for _, callback in waiting:
            callback()


class Asker:
    def __init__(self) -> None:
        self.answers = []

    def send_frame(self, op, request_id, code, parts) -> None:
        self.answers.append((request_id, code))


@pytest.fixture
def held():
    return HeldLog()


def test_a_question_during_the_sync_of_another_ones_creation_waits_for_it_too(held):
    asker, topics = Asker(), CreateTopics(held, Creations(held, NO_LIMITS))
    for request_id in (1, 2):
        topics.handle(asker, request_id, encode_topics([("payroll", 1)]))
    assert asker.answers == []
    held.sync()
    assert asker.answers == [(1, layout.OK), (2, layout.OK)]
    topics.handle(asker, 3, encode_topics([("payroll", 1)]))
    assert asker.answers[-1] == (3, layout.OK), "a topic that is durable needs no sync"


def test_a_question_about_an_old_topic_does_not_wait_for_messages_that_are_not_synced(held):
    held.create_topics([("payroll", 1)])
    held.sync()
    held.log.put_progress([(b"gg\0", b"value")])
    asker = Asker()
    CreateTopics(held, Creations(held, NO_LIMITS)).handle(asker, 1, encode_topics([("payroll", 1)]))
    assert asker.answers == [(1, layout.OK)]


@pytest.mark.parametrize("question", ["TOPIC", "ADMIN"])
def test_an_id_that_a_pull_has_created_is_durable_when_it_is_shown(question):
    desk = Desk()
    desk.ask(layout.PULL, encode_pull("readers", [("payroll", 1)]))
    assert desk.node.store.durable_position < desk.node.store.end_position
    if question == "TOPIC":
        code, payload = desk.ask(layout.TOPIC, encode_topics([("payroll", 1)]))
        shown = json.loads(payload)["topics"][0]["id"]
    else:
        code, payload = desk.ask(layout.ADMIN, b'{"verb": "topics"}')
        shown = {row["name"]: row["id"] for row in json.loads(payload)["topics"]}["payroll"]
    assert code == layout.OK
    desk.engine.env.crash()
    store = open_log(desk.engine.env, "/engine", LogConfig(segment_bytes=1 << 20))
    (other,) = store.create_topics([("public-chat", 1)])
    assert other.id != shown, "the id of a topic that proxies send under went to another topic"
    assert store.topic_by_id(shown).name == "payroll"


def test_a_simulated_log_is_not_durable_beyond_what_was_synced():
    engine = World(1).engine("a")
    store = engine.node.store
    store.put_progress([(b"gg\0", b"value")])
    before = store.durable_position
    store.when_durable(before, lambda: None)
    assert store.durable_position == before < store.end_position


class OneTopic:
    """Each application may create one topic; all are of a family."""

    def most(self, kind, application):
        return 1

    def is_counted(self, kind, name):
        return True


def test_an_application_gets_no_more_topics_of_families_than_its_quota(held):
    held.topic = held.log.topic
    topics = CreateTopics(held, Creations(held.log, OneTopic()))

    def ask(*names):
        payload = json.dumps({"topics": [{"name": name, "queues": 1} for name in names], "application": "shop"})
        topics.handle(Asker(), 1, payload.encode())

    ask("a")
    with pytest.raises(
        QuotaError, match='topic "b": application shop has created 1 topics of families, and may create 1'
    ):
        ask("a", "b")
    ask("a")
    assert held.log.topic("b") is None
