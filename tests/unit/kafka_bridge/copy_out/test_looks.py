"""Which copies have messages to copy: one question per broker group for all topics, and no turn for what an engine refuses."""

import json
import struct

import pytest

from common.config import ConfigView
from common.config.definitions.copies import CopyOutDefinition
from common.config.memory_store import MemoryConfigStore
from engine.link.codes import OK, UNKNOWN_TOPIC
from engine.link.errors import LinkError
from engine.link.pieces import encode_pieces
from engine.link.read import ReadAnswer, ReadReport
from kafka_bridge.copy_out.copier import OutCopier
from kafka_bridge.copy_out.looks import EngineLooks

TOPICS = [f"t{number}" for number in range(50)]


class PlayedEngine:
    """Attributes: ends: of the queue of each topic it knows; fault: raised by each call; questions: so many were asked."""

    def __init__(self) -> None:
        self.ends, self.fault, self.questions = dict.fromkeys(TOPICS, 7), None, 0

    def call(self, op, payload):
        self.questions += 1
        if self.fault is not None:
            raise self.fault
        asked = [each["topic"] for each in json.loads(payload)["positions"]]
        reports = json.dumps({"reports": [self._report(each)._asdict() for each in asked]}).encode()
        return OK, struct.pack("<I", len(reports)) + reports + encode_pieces([])

    def _report(self, topic):
        if topic not in self.ends:
            return ReadReport(UNKNOWN_TOPIC, error=f"{topic}: unknown")
        return ReadReport(OK, 0, 0, self.ends[topic])

    def close(self):
        pass


@pytest.fixture
def engine():
    return PlayedEngine()


@pytest.fixture
def looks(engine):
    store = MemoryConfigStore()
    for each in TOPICS:
        store.put("topic", each, {"queues": 1}, 0)
    view = ConfigView(store)
    yield EngineLooks(view, lambda: {"main": (("h", 1),)}, lambda name, addresses: engine)
    view.close()


@pytest.fixture
def copiers():
    """All after a turn that has copied everything."""
    made = [OutCopier(CopyOutDefinition(each, cluster="main"), None) for each in TOPICS]
    for each in made:
        each.next, each.again_s = {0: 7}, float("inf")
    return made


def test_one_question_finds_the_copies_that_have_messages(engine, looks, copiers):
    assert looks.moved(copiers) == []
    engine.ends["t3"] = engine.ends["t9"] = 8
    assert looks.moved(copiers) == [copiers[3], copiers[9]] and engine.questions == 2
    assert looks.moved(copiers) == [copiers[3], copiers[9]], "until they have had their turns"


def test_answers_that_are_equal_are_not_looked_into(looks, copiers, monkeypatch):
    assert looks.moved(copiers) == []
    monkeypatch.setattr(ReadAnswer, "decode", None)
    assert looks.moved(copiers) == []


def test_a_copy_without_a_position_has_a_turn_and_so_has_one_whose_time_has_come(looks, copiers):
    copiers[5].next = None
    copiers[6].again_s = 0.0
    assert {*looks.moved(copiers)} == {copiers[5], copiers[6]}


def test_a_topic_that_the_engine_does_not_know_has_no_turn_until_it_does(engine, looks, copiers):
    del engine.ends["t3"]
    copiers[3].next = None
    assert looks.moved(copiers) == [] and copiers[3].fault == "copy_out=t3: t3: unknown"
    assert [each.fault for each in copiers if each is not copiers[3]] == [""] * 49
    engine.ends["t3"] = 0
    assert looks.moved(copiers) == [copiers[3]]


def test_while_the_engine_is_away_all_copies_say_so_and_have_no_turn(engine, looks, copiers):
    engine.fault = LinkError("away")
    copiers[3].next = None
    assert looks.moved(copiers) == []
    assert {each.fault for each in copiers} == {f"copy_out={each}: broker group main: away" for each in TOPICS}
    engine.fault = None
    assert looks.moved(copiers) == [copiers[3]]
    assert {each.fault for each in copiers} == {""}
