"""Where a copy to Kafka goes on: by the position of its group, or by the last copied record where that is not its own."""

import pytest

from common.config.definitions import CutRecord
from common.kafka.base import ReaderOptions
from common.kafka.copy_mark import COPY_HEADER, CopyMark, content_hash
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition
from common.kafka.repair_mark import REPAIR_NAME
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import CopiedPositions, note_of, position_group
from tests.services.memory_kafka import MemoryKafka, MemoryKafkaAdmin, MemoryKafkaReader

PLACE, OTHER = EngineTopic("log", 9), EngineTopic("log", 4)
GROUP, ORDERS = position_group("shop"), Partition("orders", 0)


def mark(offset, place=PLACE, body=b"a"):
    return (COPY_HEADER, CopyMark(*place, 0, offset, content_hash(b"k", body)).encode())


class Copied:
    """A topic of one partition, to which a copy has written records with these engine offsets."""

    def __init__(self, *offsets) -> None:
        self.kafka = MemoryKafka(orders=1)
        self.admin, self.opened = MemoryKafkaAdmin(self.kafka), 0
        for offset in offsets:
            self.kafka.add("orders", 0, b"a", headers=[mark(offset)])
        self.positions = CopiedPositions(lambda: self.admin, self.open_reader, GROUP)

    def open_reader(self):
        self.opened += 1
        return MemoryKafkaReader(self.kafka, ReaderOptions())

    def commit(self, offset, note) -> None:
        self.kafka.committed[GROUP] = {ORDERS: CommittedPosition(offset, note)}

    def note(self, place=PLACE):
        return note_of(place, self.kafka.ids["orders"])

    def at(self, cut=None, **options):
        topic = self.admin.topics(["orders"])["orders"]
        return self.positions.of(topic, {0: PLACE}, self.positions.committed(), cut, **options).get(0)


def test_it_goes_on_behind_the_last_copied_message_and_a_repair_is_none():
    copied = Copied(40, 41)
    # A repair of a message that the copy is to reach yet: it does not say that those before it are copied.
    copied.kafka.add("orders", 0, b"c", headers=[mark(90), (REPAIR_NAME, b"-")])
    assert copied.at() == 42


def test_a_mark_that_an_application_passed_on_with_another_body_or_to_another_partition_is_none():
    copied = Copied(40)
    copied.kafka.add("orders", 0, b"another", headers=[mark(90)])
    copied.kafka.add(
        "orders", 0, b"a", headers=[(COPY_HEADER, CopyMark(*PLACE, 1, 90, content_hash(b"k", b"a")).encode())]
    )
    assert copied.at() == 41


def test_a_position_of_these_two_topics_is_believed_and_nothing_is_read():
    copied = Copied(40)
    copied.commit(77, copied.note())
    assert (copied.at(), copied.opened) == (77, 0)


@pytest.mark.parametrize("change", ["engine", "kafka"])
def test_a_position_of_a_topic_that_was_deleted_and_made_again_on_one_side_counts_for_nothing(change):
    copied = Copied()
    copied.commit(80, copied.note(OTHER if change == "engine" else PLACE))
    if change == "kafka":
        copied.kafka.create("orders", 1)
    assert copied.at() is None
    copied.kafka.add("orders", 0, b"a", headers=[mark(12)])
    assert copied.at() == 13


@pytest.mark.parametrize("behind", ["", "\ufffd", "\ufffdQ/x", "0"])
def test_a_note_counts_whatever_the_driver_has_read_behind_its_end(behind):
    """librdkafka's client gives a note with what lies behind it in memory, up to a zero byte."""
    copied = Copied()
    copied.commit(77, copied.note() + behind)
    assert copied.at() == 77


def test_a_position_without_a_note_leads_back_where_this_topic_was_copied():
    """Kafka's tools write none."""
    copied = Copied()
    copied.commit(8, "")
    assert copied.at() is None, "it may be of any topic"
    copied.kafka.add("orders", 0, b"a", headers=[mark(12)])
    assert copied.at() == 8


def test_a_position_without_a_note_leads_on_only_over_messages_that_retention_has_deleted():
    copied = Copied(12)
    copied.commit(80, "")
    assert copied.at() == 13
    assert copied.at(is_deleted=lambda queue, offset: offset < 79) == 13
    assert copied.at(is_deleted=lambda queue, offset: offset < 80) == 80


def test_records_of_before_the_cut_are_not_read_and_none_is_read_twice():
    copied = Copied(*range(10))
    assert copied.at(CutRecord("shop", 1, 1, "main", str(copied.kafka.ids["orders"]), (10,), (10,))) is None
    assert copied.opened == 0
    copied.kafka.add("orders", 0, b"a", headers=[mark(10)])
    assert (copied.at(), copied.at(), copied.opened) == (11, 11, 1)


def test_queues_without_a_partition_are_left_out():
    copied = Copied(3)
    topic = copied.admin.topics(["orders"])["orders"]
    assert copied.positions.of(topic, {0: PLACE, 1: PLACE}, {}, None) == {0: 4}
