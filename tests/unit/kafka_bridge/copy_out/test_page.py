"""A page of engine records as Kafka records: which are copied, where they go, and the positions after them."""

from uuid import UUID

import pytest

from common.contract import Message, encode_struct
from common.kafka.base import KafkaTopic
from common.kafka.copy_mark import COPY_HEADER, parse_copy_mark
from common.kafka.repair_mark import REPAIR_NAME, RepairMark, repair_hash
from engine.link.copy import ForeignSource, QueueSource, SourceState
from engine.link.pieces import AnswerPiece
from engine.link.record import encode_copied_record, encode_record
from kafka_bridge.copy_out.page import EngineTopic, OutgoingPage, is_from
from kafka_bridge.mapping import UnmappableMessage
from kafka_bridge.source_identity import source_of

PLACES = {0: EngineTopic("another", 7), 3: EngineTopic("log", 9)}
TOPIC = UUID("12345678-1234-5678-1234-567812345678")


def message(body, **fields):
    return encode_struct(Message(topic="orders", body=body, **fields))


def piece(queue, first, *records):
    return AnswerPiece(bytes(48), first, 0, queue, len(records), 0, 1_234, b"".join(records))


def page_of(*pieces, is_own=lambda queue, offset: True):
    page = OutgoingPage("in-kafka", PLACES, is_own, TOPIC)
    for each in pieces:
        page.add(each)
    return page


def test_a_record_goes_to_the_partition_of_its_queue_with_its_time_its_id_and_its_mark():
    page = page_of(piece(3, 41, encode_record(message(b"v", key="k", id="own", properties={"p": "q"}))))
    records = page.records
    assert (records.topics, records.partitions, records.timestamps) == (["in-kafka"], [3], [1_234])
    assert (records.keys, records.values) == ([b"k"], [b"v"])
    headers = dict(records.headers[0])
    mark = parse_copy_mark(headers.pop(COPY_HEADER))
    assert headers == {"penstock-id": b"own", "p": b"q"}
    assert mark[:4] == ("log", 9, 3, 41) and mark.matches(b"k", b"v")
    assert page.next == {3: 42}


def test_an_assigned_id_is_the_one_that_senders_see():
    page = page_of(piece(0, 0, encode_record(message(b"v"), bytes(range(16)))))
    assert dict(page.records.headers[0])["penstock-id"] == bytes(range(16)).hex().encode()


def test_what_a_reconciliation_has_written_from_this_topic_is_skipped_and_the_same_mark_on_another_body_is_not():
    mark = RepairMark(TOPIC.bytes, False, 7, repair_hash(b"own", None, b"v")).encode().decode()
    properties = {REPAIR_NAME: mark}
    records = [encode_record(message(body, id="own", properties=properties)) for body in (b"v", b"w")]
    page = page_of(piece(0, 0, *records))
    assert (page.records.values, page.skipped, page.next) == ([b"w"], 1, {0: 2})


def test_records_of_this_kafka_topic_are_skipped_and_move_the_position():
    records = [
        encode_record(message(b"a")),
        encode_copied_record(message(b"b"), 5),
        encode_copied_record(message(b"c"), 6),
    ]
    page = page_of(piece(0, 10, *records), is_own=lambda queue, offset: offset == 11)
    assert (page.records.values, page.skipped, page.next) == ([b"a", b"c"], 1, {0: 13})
    own = page_of(piece(0, 10, *records[1:]))
    assert (own.records.topics, own.skipped, own.next) == ([], 2, {0: 12})


def test_properties_with_reserved_names_are_passed_on():
    page = page_of(piece(0, 0, encode_record(message(b"v", properties={"penstock-time": "5"}))))
    assert dict(page.records.headers[0])["penstock-time"] == b"5"


def test_a_property_with_the_name_of_an_own_header_forges_none():
    forged = {
        "penstock-id": "evil",
        "penstock-copy": "log 9 3 99 " + "00" * 8,
        "penstock-repair": "x",
        "penstock-tag": "y",
    }
    page = page_of(piece(3, 41, encode_record(message(b"v", id="own", properties=forged))))
    names = [name for name, _ in page.records.headers[0]]
    assert sorted(names) == sorted(["penstock-id", "penstock-copy", *(f"{name}-property" for name in forged)])
    headers = dict(page.records.headers[0])
    assert headers["penstock-id"] == b"own" and parse_copy_mark(headers["penstock-copy"]).offset == 41
    assert headers["penstock-id-property"] == b"evil"


def test_bytes_that_are_no_message_stop_the_page():
    with pytest.raises(UnmappableMessage):
        page_of(piece(0, 0, encode_record(b"\x0b\x00")))


def state(*sources):
    found = [QueueSource(number, ForeignSource(identity, 0), 0, first, 0, "") for number, identity, first in sources]
    return SourceState(1, found[-1].number, 0, 0, found)


def identity(topic_id):
    return source_of("cluster", KafkaTopic("in-kafka", topic_id, 1, 1), 0).identity


def test_a_source_is_the_kafka_topic_if_its_identity_has_the_topics_id():
    assert is_from(state((1, identity(TOPIC), 0)), 5, TOPIC)
    assert not is_from(state((1, identity(UUID(int=1)), 0)), 5, TOPIC)
    assert not is_from(state((1, TOPIC.bytes, 0)), 5, TOPIC), "a source of something else"


def test_the_source_of_a_record_is_the_last_one_that_was_accepted_before_it():
    both = state((1, identity(TOPIC), 0), (2, b"another", 10))
    assert is_from(both, 9, TOPIC) and not is_from(both, 10, TOPIC)
