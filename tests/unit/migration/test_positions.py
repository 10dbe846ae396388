"""Questions about positions: few for many topics, to the right engine, and what the answers mean."""

import json

import pytest

from common.contract import Code
from common.kafka.base import END, STABLE_END
from common.kafka.records import Partition
from common.placement import Placement, topic_hash
from engine.client.admin import AdminError
from engine.link.codes import OK
from engine.link.copy import ForeignSource, QueueSource, SourceState, shown_state
from migration.positions import CopiedTopic, EnginePositions, kafka_ends, source_faults


def state(number, *, sources=1):
    rows = [QueueSource(n + 1, ForeignSource(b"main", n), 0, 0, 0, f"reason {n}") for n in range(sources)]
    return SourceState(1, sources, number, number, rows)


class Link:
    """An engine that knows some topics; the next offset of a queue is its number."""

    def __init__(self, *known) -> None:
        self.known, self.asked, self.queues = known, [], 10_000

    def call(self, op, payload):
        queues = json.loads(payload)["queues"]
        self.asked.append(queues)
        if missing := [queue for _, queue in queues if queue >= self.queues]:
            return Code.INVALID, f"queue {missing[0]}: use 0..{self.queues - 1}".encode()
        if unknown := [name for name, _ in queues if name.partition("@")[0] not in self.known]:
            return Code.UNKNOWN_TOPIC, f"no topic {unknown[0]}".encode()
        return OK, json.dumps({"states": [shown_state(state(queue)) for _, queue in queues]}).encode()

    def ask(self, verb, **options):
        if options["topic"] not in self.known:
            raise AdminError(Code.UNKNOWN_TOPIC, "no")
        return {"purged": [{"queue": queue, "first": 0, "end": 9} for queue in range(3)]}


def test_all_topics_of_an_engine_are_asked_for_in_one_request_by_their_stored_names():
    link = Link("a", "b")
    found = EnginePositions({"main": link}).copied([CopiedTopic("a", 5, 2), CopiedTopic("b", 0, 1)])
    assert {name: [each.next for each in rows] for name, rows in found.items()} == {"a": [0, 1], "b": [0]}
    assert link.asked == [[["a@5", 0], ["a@5", 1], ["b", 0]]]


def test_a_topic_that_the_engine_does_not_have_yet_has_no_positions_and_hides_no_others():
    found = EnginePositions({"main": Link("a")}).copied([CopiedTopic("gone", 0, 1), CopiedTopic("a", 0, 1)])
    assert (found["gone"], len(found["a"])) == ([], 1)


def test_queues_that_an_engine_does_not_have_yet_have_no_source_and_hide_no_others():
    link = Link("a", "b")
    link.queues = 2
    found = EnginePositions({"main": link}).copied([CopiedTopic("a", 0, 4), CopiedTopic("b", 0, 1)])
    assert [(each.number, each.next) for each in found["a"]] == [(1, 0), (1, 1), (0, 0), (0, 0)]
    assert len(found["b"]) == 1


def test_another_refusal_is_raised():
    link = Link()
    link.call = lambda op, payload: (Code.UNAVAILABLE, b"later")
    with pytest.raises(AdminError, match="later"):
        EnginePositions({"main": link}).copied([CopiedTopic("a", 0, 1)])


def test_with_several_broker_groups_each_queue_is_asked_at_its_home():
    links = {"g1": Link("a"), "g2": Link("a")}
    positions = EnginePositions(links)
    (rows,) = positions.copied([CopiedTopic("a", 0, 16)]).values()
    assert [each.next for each in rows] == [*range(16)]
    placement = Placement(["g1", "g2"])
    for number, link in enumerate(links.values()):
        queues = [queue for asked in link.asked for _, queue in asked]
        assert queues == [queue for queue in range(16) if placement.home(topic_hash(b"a"), queue) == number]
    assert positions.ends(CopiedTopic("a", 0, 3)) == {0: 9, 1: 9, 2: 9}


def test_many_queues_are_asked_for_in_parts():
    link = Link("a", "b", "c")
    EnginePositions({"main": link}).copied([CopiedTopic(name, 0, 4_000) for name in "abc"])
    assert [len(each) for each in link.asked] == [8_000, 4_000]


def test_the_end_is_asked_before_the_stable_end_which_is_never_above_it():
    asked = []

    class Kafka:
        def offsets(self, partitions, at):
            asked.append(at)
            return dict.fromkeys(partitions, len(asked)) | {Partition("a", 1): None}

    found = kafka_ends(Kafka(), {"a": 2})
    assert asked == [END, STABLE_END] and (found.stable["a"], found.ends["a"]) == ((1, 0), (1, 0))


def test_a_queue_with_two_sources_is_told_with_those_after_the_first_and_the_last_reason():
    assert source_faults([state(1), state(1)]) == ()
    (told,) = source_faults([state(1), state(1, sources=2)])
    assert told == "queue 1: sources accepted after its first: 1, the last because: reason 1"
