"""COPY, SOURCE_STATE and SOURCE_ACCEPT over the link, from both forms of the server, on a real log."""

import json

import gevent
import pytest

from engine.client.admin import AdminError
from engine.client.copied import CopiedPlace, accept, copy, engine_offset_of, source_offset_at, states
from engine.link.append import APPEND_HEAD
from engine.link.batch import encode_copied_batch
from engine.link.codes import INVALID, NOT_MASTER, OK, SOURCE_MOVED, UNKNOWN_TOPIC
from engine.link.copy import Copied, CopyPart, ForeignSource, encode_copy
from engine.link.operations import COPY, SOURCE_ACCEPT, SOURCE_STATE
from engine.link.record import encode_copied_record
from tests import link_bytes as raw
from tests.contract.link_engine import Engine, turn_until

SOURCE, OTHER = ForeignSource(b"cluster/topic", 7), ForeignSource(b"c" * 64, 0)


class Bridge:
    """A copier over the link of a test's engine."""

    def __init__(self, engine: Engine, queue: int = 0, source: ForeignSource = SOURCE, topic: str = "orders") -> None:
        self.engine, self.topic, self.queue, self.source = engine, topic, queue, source

    def call(self, op: int, payload: bytes) -> tuple[int, bytes]:
        return self.engine.ask(op, payload)

    @property
    def state(self):
        (found,) = states(self, [(self.topic, self.queue)])
        return found

    def accept(self, start: int = 0, replaces: int = 0, next_offset: int | None = None):
        return accept(
            self, self.topic, self.queue, self.source, start=start, replaces=replaces, reason="a test",
            next_offset=next_offset,
        )  # fmt: skip

    def part(self, following: int, *offsets: int, number: int = 1) -> CopyPart:
        records = [encode_copied_record(b"m%d\0" % offset, offset) for offset in offsets]
        return CopyPart(self.source, following, encode_copied_batch(self.state.topic_id, self.queue, number, records))

    def copy(self, *parts: CopyPart, durability: int = raw.MEMORY) -> list[Copied]:
        return copy(self, durability, parts)


@pytest.fixture
def bridge(engine):
    engine.topic()
    made = Bridge(engine)
    made.accept(start=10)
    return made


@pytest.mark.parametrize("durability", [1, 2, 3, 4])
def test_parts_are_stored_as_durable_as_asked(bridge, durability):
    other = Bridge(bridge.engine, queue=1)
    other.accept()
    parts = bridge.part(10, 10, 12), other.part(0, 0), bridge.part(13, 13)
    assert bridge.copy(*parts, durability=durability) == [
        Copied(OK, 1, 13, 0),
        Copied(OK, 1, 1, 0),
        Copied(OK, 1, 14, 2),
    ]
    log = bridge.engine.log
    if durability != raw.MEMORY:
        assert log.durable_position == log.end_position
    assert (bridge.state.number, bridge.state.next, bridge.state.end) == (1, 14, 3)
    assert bridge.state.source == SOURCE


def test_what_copiers_are_told_of_sources_is_on_the_disk_whatever_durability_they_ask_for(engine):
    engine.topic()
    bridge, log = Bridge(engine), engine.log
    accept(bridge, "orders", 0, SOURCE, start=0, replaces=0, reason="a test", durability=raw.MEMORY)
    assert log.durable_position == log.end_position
    bridge.copy(bridge.part(0, 0))
    assert log.durable_position < log.end_position, "the class is that of the part"
    assert bridge.state.next == 1 and log.durable_position == log.end_position


def test_a_part_that_does_not_fit_stops_those_that_continue_it(bridge):
    parts = bridge.part(10, 10), bridge.part(12, 12), bridge.part(13, 13)
    moved = Copied(SOURCE_MOVED, 1, 11, 0)
    assert bridge.copy(*parts) == [Copied(OK, 1, 11, 0), moved, moved]


def test_a_copier_whose_source_was_replaced_learns_the_number_of_the_new_one(bridge):
    other = Bridge(bridge.engine, source=OTHER)
    state = other.accept(start=3, replaces=1)
    assert [(each.number, each.source, each.reason) for each in state.sources] == [
        (1, SOURCE, "a test"),
        (2, OTHER, "a test"),
    ]
    assert bridge.copy(bridge.part(10, 10)) == [Copied(SOURCE_MOVED, 2, 3, 0)]
    with pytest.raises(AdminError, match="its source has number 2, not 1") as refused:
        bridge.accept(start=10, replaces=1)
    assert refused.value.code == SOURCE_MOVED


def test_a_copier_may_go_on_at_a_later_offset_only_while_no_other_one_has_gone_on(bridge):
    bridge.copy(bridge.part(10, 10, 11))
    with pytest.raises(AdminError, match="its next offset is 12, not 11: another copier goes on") as refused:
        bridge.accept(start=20, replaces=1, next_offset=11)
    assert refused.value.code == SOURCE_MOVED
    assert bridge.accept(start=20, replaces=1, next_offset=12).next == 20
    assert bridge.accept(start=20, replaces=1, next_offset=12).number == 2, "asked again after a lost answer"
    assert bridge.copy(bridge.part(20, 21, number=2)) == [Copied(OK, 2, 22, 2)]
    assert engine_offset_of(bridge, "orders", 0, 11) == CopiedPlace(1, 1, 11), "of the source as it was accepted first"
    assert engine_offset_of(bridge, "orders", 0, 12) == CopiedPlace(2, 2, 21)


@pytest.mark.parametrize(
    ("op", "payload", "sentence"),
    [
        (COPY, b"", "COPY: durability 1..4"),
        (COPY, APPEND_HEAD.pack(5, 1), "COPY: durability 1..4"),
        (COPY, APPEND_HEAD.pack(1, 0), "COPY: durability 1..4"),
        (COPY, APPEND_HEAD.pack(1, 1), "part 0 of 1: runs past byte 8"),
        (COPY, encode_copy(1, [CopyPart(SOURCE, 0, bytes(48))]), "batch of 0 bytes runs past"),
        (COPY, encode_copy(1, [CopyPart(ForeignSource(b"", 0), 0, bytes(48))]), "identity of 0 bytes: use 1 to 64"),
        (COPY, encode_copy(1, [CopyPart(ForeignSource(b"x" * 65, 0), 0, bytes(48))]), "identity of 65 bytes"),
        (SOURCE_STATE, b"[]", "SOURCE_STATE: send a JSON object"),
        (SOURCE_STATE, b'{"queues": [["orders"]]}', "SOURCE_STATE: send a JSON object"),
        (SOURCE_STATE, b'{"queues": [["orders", 2]]}', 'topic "orders": queue 2: use 0..1'),
        (SOURCE_STATE, b'{"queues": [["a/b", 2]]}', "topic: "),
        (SOURCE_ACCEPT, b"{}", "SOURCE_ACCEPT: send a JSON object"),
    ],
)
def test_a_wrong_request_is_refused_by_a_sentence_that_names_the_rule(bridge, op, payload, sentence):
    code, answer = bridge.engine.ask(op, payload)
    assert code == INVALID
    assert sentence in answer.decode()


GOOD = {
    "durability": 1, "topic": "orders", "queue": 1, "identity": "aa", "partition": 0, "start": 0, "replaces": 0,
    "reason": "a test",
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("durability", 0, "SOURCE_ACCEPT: send a JSON object"),
        ("topic", "a/b", "topic: "),
        ("queue", True, 'topic "orders": queue True: use 0..1'),
        ("identity", "", "topic \"orders\" queue 1: identity '': use 1 to 64 bytes"),
        ("identity", "a", "identity 'a': use 1 to 64 bytes"),
        ("identity", "aa" * 65, "use 1 to 64 bytes"),
        ("partition", -1, "partition -1: use a number from 0 on"),
        ("start", -1, "start -1: use an offset of the source"),
        ("start", 0xFFFFFFFFFFFFFFFF, "use an offset of the source"),
        ("replaces", None, "replaces None: use the number of the queue's source, 0 for none"),
        ("reason", "", "reason '': use a text of 1 to 1024 bytes"),
        ("reason", "x" * 1025, "use a text of 1 to 1024 bytes"),
    ],
)
def test_a_wrong_source_is_refused_by_a_sentence_that_names_field_and_rule(bridge, field, value, sentence):
    code, answer = bridge.engine.ask(SOURCE_ACCEPT, json.dumps({**GOOD, field: value}).encode())
    assert code == INVALID
    assert sentence in answer.decode()
    assert Bridge(bridge.engine, queue=1).state.number == 0
    assert bridge.engine.ask(SOURCE_ACCEPT, json.dumps(GOOD).encode())[0] == OK


def test_an_unknown_topic_is_refused(bridge):
    with pytest.raises(AdminError, match='topic "none": this engine has no such topic') as refused:
        states(bridge, [("none", 0)])
    assert refused.value.code == UNKNOWN_TOPIC


def test_an_engine_that_hands_over_refuses_copiers(bridge):
    part = bridge.part(10, 10)
    bridge.engine.node.turn_away("broker b is the master")
    with pytest.raises(AdminError, match="broker b is the master") as refused:
        bridge.copy(part)
    assert refused.value.code == NOT_MASTER
    bridge.engine.node.turn_away("")
    assert bridge.copy(part)[0].code == OK


def test_offsets_are_found_both_ways(bridge):
    bridge.copy(bridge.part(10, *range(10, 40, 3)))
    bridge.engine.store(bridge.state.topic_id, 7)
    bridge.copy(bridge.part(38, *range(40, 60)))
    bridge.engine.store(bridge.state.topic_id, 3)
    other = Bridge(bridge.engine, source=OTHER)
    other.accept(start=5, replaces=1)
    other.copy(other.part(5, 5, 6, number=2))
    places = [source_offset_at(bridge, "orders", 0, offset) for offset in range(42)]
    assert [each for each in places if each is None] == [None] * 10
    for wanted in (0, 10, 11, 12, 13, 37, 38, 40, 59):
        copied = [each for each in places if each and each.number == 1 and each.source_offset >= wanted]
        assert engine_offset_of(bridge, "orders", 0, wanted, number=1) == copied[0]
    assert engine_offset_of(bridge, "orders", 0, 60, number=1) is None
    assert engine_offset_of(bridge, "orders", 0, 6) == CopiedPlace(41, 2, 6)
    assert engine_offset_of(bridge, "orders", 0, 6, number=3) is None
    assert engine_offset_of(bridge, "orders", 1, 0) is None


def test_a_pull_that_waits_is_answered_with_copied_messages(bridge):
    waiting = gevent.spawn(bridge.engine.pull, wait_ms=5_000)
    turn_until(lambda: bridge.engine.delivery.parked == 1)
    bridge.copy(bridge.part(10, 10))
    _, pieces = waiting.get(timeout=10)
    assert [piece.count for piece in pieces] == [1]
