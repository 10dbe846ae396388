"""Batches of the tap against the reference's form of the same messages: intents, marks, entries of the backlog, PRODUCE."""

from types import SimpleNamespace

import gevent
import pytest

from common.contract import Code, Message
from common.ops.connection_pages import OpsRequest
from common.ops.send_pages import SENDS_PATH
from engine.link.produce import PRODUCE_RESULT, ProducedMessage, ProducedResult, encode_produce, encode_produced
from producer_proxy.buffer import blocks
from producer_proxy.buffer.entry import decode
from producer_proxy.buffer.native import marks_of
from producer_proxy.buffer.ordering_keys import slot_of
from producer_proxy.journal import copying
from producer_proxy.journal.backlog import packed
from producer_proxy.journal.divergence import divergence
from producer_proxy.journal.intents import intents_of
from producer_proxy.journal.native import HAS_TAP, all_stored, encode_produce_of
from producer_proxy.journal.segment import JournalSegment, pack_stored
from producer_proxy.journal.sides import Sides
from producer_proxy.targets import kafka as kafka_module
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.send.desk import codes
from tests.unit.producer_proxy.targets.test_kafka_target import PARTITIONS

pytestmark = pytest.mark.skipif(not HAS_TAP, reason="the tap is native code, which is not built in this run")

MESSAGES = [
    Message(topic="out", body=b"plain"),
    Message(topic="out", key="k", body=b""),
    Message(topic="out", key="", body=b"x" * 700),
    Message(topic="orders.two", key="k", tag="t", properties={"a": "ü", "b": "2"}, body=b"y"),
    Message(topic="out", key="schlüssel", id="own-id", body=bytes(range(256))),
    Message(topic="orders.two", id="other", body=b"z"),
]


@pytest.fixture
def desk(tap_desk):
    return tap_desk


@pytest.fixture
def batches(desk, monkeypatch):
    """The batches of one hot call with all of MESSAGES, with their intents in a segment."""
    taken: list = []
    copy = copying.SecondaryCopies._copy_tapped

    def copy_kept(self, found):
        assert all(map(desk.proxy.journaling.journal.keep, found))
        taken.extend(found)
        return copy(self, found)

    monkeypatch.setattr(copying.SecondaryCopies, "_copy_tapped", copy_kept)
    before = desk.proxy.front.hot_calls
    assert codes(desk.send(*MESSAGES)) == [Code.OK] * len(MESSAGES)
    assert desk.proxy.front.hot_calls == before + 1
    wait_until(lambda: sum(each.count for each in taken) == len(MESSAGES))
    return taken


def test_its_intents_are_the_bytes_of_the_reference(batches):
    for batch in batches:
        _, messages, _ = batch.unpacked()
        first = blocks.block_at(bytes(batch), 0, batch.base)
        data, positions = intents_of(batch.base, decode(first.payload).accepted_at_ms, messages)
        assert (bytes(batch), batch.positions()) == (data, positions)


def test_it_unpacks_to_what_was_sent_bound_by_the_same_keys_and_under_the_same_ids(batches):
    found = {}
    for batch in batches:
        for message, outcome in zip(*batch.unpacked()[1:], strict=True):
            found[message.destination.name, message.key, message.assigned_id is None] = outcome
    wanted = {(each.topic, None if each.key is None else each.key.encode(), each.id is not None) for each in MESSAGES}
    assert found.keys() == wanted and {outcome[0] for outcome in found.values()} == {Code.OK}


def test_its_request_to_the_secondary_is_that_of_the_reference(batches):
    names = list(dict.fromkeys(topic.name for batch in batches for topic in batch.topics))
    wanted = [
        ProducedMessage(names.index(message.destination.name), outcome[1], message.assigned_id, message.encoded)
        for batch in batches
        for message, outcome in zip(*batch.unpacked()[1:], strict=True)
    ]
    assert encode_produce_of(batches, "main", 3000) == encode_produce("main", names, 3000, wanted)


def test_its_marks_and_entries_of_the_backlog_are_those_of_the_reference(batches):
    for batch in batches:
        base = batch.base - 8
        intents, messages, outcomes = batch.unpacked()
        offsets = [intent - base for intent in intents]
        assert batch.marks(base) == marks_of(base, offsets)
        stored = [pack_stored(base, offset, outcome[1]) for offset, outcome in zip(offsets, outcomes, strict=True)]
        assert batch.stored_marks(base) == b"".join(stored)
        for is_asked_for in (False, True):
            numbers = [number for _, some, _ in batch.repairs(is_asked_for) for number in some]
            pairs = zip(intents, outcomes, strict=True)
            assert sorted(numbers) == [packed(intent, outcome[1], is_asked_for) for intent, outcome in pairs]
        slots = [slot for _, _, counts in batch.repairs(False) for slot, count in counts.items() for _ in range(count)]
        assert sorted(slots) == sorted(slot_of(message.key) for message in messages)


def test_an_answer_counts_as_all_stored_only_if_it_says_ok_to_every_message():
    answer = encode_produced([ProducedResult(0, 3, 7)] * 3)
    assert all_stored(answer, 3)
    assert not all_stored(answer, 2) and not all_stored(answer[:-1], 3)
    for code in (1, 203, 256):
        refused = answer[: PRODUCE_RESULT.size] + PRODUCE_RESULT.pack(code, 0, -1) + answer[2 * PRODUCE_RESULT.size :]
        assert not all_stored(refused, 3)
    assert not all_stored(encode_produced([ProducedResult(0, 3, 7, "a sentence")] * 3), 3)


def test_the_intent_is_in_the_journal_before_the_primary_has_answered(desk):
    desk.engine.go.clear()
    calling = gevent.spawn(desk.send, Message(topic="out", id="early", key="k"))
    wait_until(lambda: {"out"} <= {each.topic for each in divergence(desk.journal, underway_ms=0).queues})
    assert not calling.ready() and desk.proxy.journaling.held() == {"out"}
    desk.engine.go.set()
    calling.join()
    wait_until(lambda: divergence(desk.journal, underway_ms=0).is_empty)


def test_a_journal_whose_disk_fails_costs_the_caller_nothing_and_the_missed_messages_are_a_range(desk, monkeypatch):
    def fail(self, data):
        raise OSError(28, "the disk is full")

    monkeypatch.setattr(desk.proxy.journaling.journal, "begin", lambda batch: False)
    monkeypatch.setattr(JournalSegment, "append", fail)
    sent = [Message(topic="out", key="k", body=b"%d" % number) for number in range(3)]
    assert codes(desk.send(*sent)) == [Code.OK] * 3
    (missed,) = desk.proxy.journaling.intents.ranges.all
    assert (missed.topic, missed.messages, missed.last - missed.first) == ("out", 3, 2)


def test_an_engine_that_breaks_off_leaves_its_messages_to_the_repair(desk, monkeypatch):
    monkeypatch.setattr("producer_proxy.targets.base.SendTarget.settled_after_s", 0.05)
    desk.engine.go.clear()
    calling = gevent.spawn(desk.send, Message(topic="out", id="lost", key="k"), timeout_ms=300)
    wait_until(lambda: desk.proxy.journaling.held() == {"out"})
    desk.engine.break_links()
    wait_until(lambda: desk.proxy.journaling.backlog.count == 1)
    desk.engine.go.set()
    calling.join()
    wait_until(lambda: not desk.proxy.journaling.backlog.count, 60.0)


def test_calls_come_first_after_each_batch_that_a_hanging_secondary_leaves_behind(desk, monkeypatch):
    rests: list[float] = []

    def sleep(seconds):
        rests.append(seconds)
        gevent.sleep(seconds)

    monkeypatch.setattr(copying, "gevent", SimpleNamespace(sleep=sleep, spawn=gevent.spawn))
    monkeypatch.setattr(kafka_module, "OVERDUE_S", 0.2)
    monkeypatch.setattr(desk.proxy.journaling.journal, "begin", lambda batch: False)  # a batch per append
    desk.kafka.is_holding = True
    for number in range(8):
        assert codes(desk.send(Message(topic="out", key="k", body=b"%d" % number))) == [Code.OK]
        wait_until(lambda: desk.kafka.held)
    wait_until(lambda: desk.proxy.journaling.backlog.count == 8)
    assert sum(each > 0 for each in rests) == 7, "the first one has waited for Kafka"
    desk.kafka.release()
    wait_until(lambda: not desk.proxy.journaling.backlog.count, 60.0)


def test_copies_wait_for_others_no_longer_than_until_there_are_enough(desk, monkeypatch):
    monkeypatch.setattr(copying, "GATHER_S", 60.0)
    monkeypatch.setattr(copying, "GATHER_BYTES", 1_000)
    monkeypatch.setattr(desk.proxy.journaling.journal, "begin", lambda batch: False)  # a batch per append
    before = len(desk.kafka.records("out"))
    desk.send(Message(topic="out", body=b"few"))
    desk.send(Message(topic="out", body=bytes(1_000)))
    wait_until(lambda: len(desk.kafka.records("out")) == before + 2)


def test_the_secondary_is_asked_about_a_topic_once_per_version_of_the_configuration(desk, monkeypatch):
    asked: list[set[str]] = []
    at_secondary = Sides.at_secondary

    def told(self, queues):
        asked.append(set(queues))
        return at_secondary(self, queues)

    monkeypatch.setattr(Sides, "at_secondary", told)

    def asked_for_a_copy():
        asked.clear()
        assert codes(desk.send(Message(topic="out"))) == [Code.OK]
        wait_until(lambda: divergence(desk.journal, underway_ms=0).is_empty and not desk.proxy.journaling.held())
        return list(asked)

    wait_until(lambda: asked_for_a_copy() == [], 10.0)  # what the first one has entered there has arrived
    desk.config.put("topic", "another", {"queues": PARTITIONS}, 0)
    wait_until(lambda: desk.view.topic("another") is not None)
    assert asked_for_a_copy() == [{"out"}] and asked_for_a_copy() == []


def test_outcomes_of_a_hot_call_over_several_topics_are_counted_per_topic(desk):
    desk.send(Message(topic="orders"))  # no plan may move it, so it is not counted
    before = desk.proxy.front.hot_calls
    for names in (("out", "orders.two", "orders", "out", "orders", "out"), ("orders", "orders.two")):
        assert codes(desk.send(*[Message(topic=name) for name in names])) == [Code.OK] * len(names)
    assert desk.proxy.front.hot_calls == before + 2
    _, page = desk.proxy.outcomes.pages()[SENDS_PATH](OpsRequest("GET", {}, b"", "", ""))
    assert page["topics"] == {"out": (4, 0), "orders.two": (3, 0)}, "one each was sent by the fixture"
