"""Copied batches: which of them a log stores, and what it answers."""

import errno

import pytest
from copier import OTHER, SOURCE, Copier, copied_batch, stored_offsets
from machine import NOW

from engine.errors import ClosedError, DiskFullError, NotMasterError, SourceMovedError
from engine.link.batch import encode_batch
from engine.link.codes import INVALID, OK, SOURCE_MOVED, UNKNOWN_TOPIC
from engine.link.copy import Copied, CopyPart
from engine.link.record import encode_copied_record, encode_record
from engine.log.write.copied_state import CopiedState


def edited(batch: bytes, at: int, data: bytes) -> bytes:
    return batch[:at] + data + batch[at + len(data) :]


@pytest.fixture
def copier(any_machine):
    made = Copier(any_machine)
    made.accept(start=10)
    return made


def test_records_are_stored_with_their_source_offsets_and_holes_upwards_are_allowed(copier):
    assert copier.copy(10, 11, 15) == Copied(OK, 1, 16, 0)
    assert copier.copy(20) == Copied(OK, 1, 21, 3)
    assert stored_offsets(copier.machine) == [10, 11, 15, 20]
    assert copier.machine.log.copied.state(1, 0) == CopiedState(1, 21, 4)


def test_a_record_that_was_copied_is_not_stored_again_by_a_second_copier(copier):
    second = Copier(copier.machine)
    second.ask()
    copier.copy(10, 11)
    assert second.copy(10) == Copied(SOURCE_MOVED, 1, 12, 0)
    assert second.copy(12) == Copied(SOURCE_MOVED, 1, 12, 0), "it does not know that 10 and 11 are copied"
    second.ask()
    assert second.copy(12).code == OK
    assert copier.copy(12).code == SOURCE_MOVED
    assert stored_offsets(copier.machine) == [10, 11, 12]


def test_a_batch_that_begins_below_the_next_offset_is_refused_as_a_whole(copier):
    assert copier.copy(9, 10) == Copied(SOURCE_MOVED, 1, 10, 0)
    copier.copy(10)
    assert copier.copy(10, 11) == Copied(SOURCE_MOVED, 1, 11, 0)
    assert stored_offsets(copier.machine) == [10]


def test_a_batch_after_one_that_was_refused_is_refused_too(copier):
    machine = copier.machine
    lost = edited(copied_batch(1, 0, 1, [10]), 52, b"\0")
    following = copied_batch(1, 0, 1, [11])
    assert machine.log.copied.append(CopyPart(SOURCE, 10, lost), NOW).code == INVALID
    assert machine.log.copied.append(CopyPart(SOURCE, 11, following), NOW) == Copied(SOURCE_MOVED, 1, 10, 0)
    assert stored_offsets(machine) == []


def test_other_messages_may_lie_between_copied_ones(copier):
    copier.copy(10)
    copier.machine.append(1, 0, b"sent")
    assert copier.copy(11).first_offset == 2
    assert stored_offsets(copier.machine) == [10, None, 11]


def test_a_queue_without_a_source_takes_none(any_machine):
    copier = Copier(any_machine)
    copier.number = 1
    assert copier.copy(0) == Copied(SOURCE_MOVED, 0, 0, 0)
    copier.number = 0
    assert copier.copy(0) == Copied(SOURCE_MOVED, 0, 0, 0)


@pytest.mark.parametrize("source", [OTHER, SOURCE._replace(partition=4)])
def test_another_source_is_refused_until_it_is_accepted(copier, source):
    copier.copy(10, 11)
    other = Copier(copier.machine, source=source)
    other.ask()
    assert other.copy(50) == Copied(SOURCE_MOVED, 1, 12, 0)
    other.accept(start=5, replaces=1, reason="the topic was made again")
    assert other.copy(5, 6) == Copied(OK, 2, 7, 2)
    assert copier.copy(12) == Copied(SOURCE_MOVED, 2, 7, 0)
    sources = copier.machine.log.copied.sources(1, 0)
    assert [(each.number, each.source, each.start, each.first, each.reason) for each in sources] == [
        (1, SOURCE, 10, 0, "a test"),
        (2, source, 5, 2, "the topic was made again"),
    ]


def test_of_two_that_replace_a_source_one_is_refused(copier):
    other, third = Copier(copier.machine, source=OTHER), Copier(copier.machine)
    other.accept(start=0, replaces=1)
    with pytest.raises(SourceMovedError, match="its source has number 2, not 1"):
        third.accept(start=7, replaces=1)
    assert [each.number for each in copier.machine.log.copied.sources(1, 0)] == [1, 2]


def test_a_source_that_is_accepted_again_after_a_lost_answer_stays_as_it_is(copier):
    copier.accept(start=10)
    assert (copier.number, copier.next) == (1, 10)
    copier.copy(10)
    with pytest.raises(SourceMovedError):
        copier.accept(start=10)


def test_the_same_source_may_begin_again_elsewhere(copier):
    copier.copy(10, 11)
    copier.accept(start=3, replaces=1)
    assert copier.copy(3) == Copied(OK, 2, 4, 2)


def test_queues_have_sources_of_their_own(copier):
    other = Copier(copier.machine, queue=1)
    other.accept(start=2)
    other.copy(2)
    copier.copy(10)
    assert (copier.next, other.next) == (11, 3)


def test_an_unknown_topic_and_queue_are_refused(copier):
    log = copier.machine.log
    assert log.copied.append(CopyPart(SOURCE, 10, copied_batch(9, 0, 1, [10])), NOW).code == UNKNOWN_TOPIC
    assert log.copied.append(CopyPart(SOURCE, 10, copied_batch(1, 4, 1, [10])), NOW).code == INVALID


GOOD = copied_batch(1, 0, 1, [10, 11])


@pytest.mark.parametrize(
    "batch",
    [
        copied_batch(1, 0, 1, [11, 10]),
        copied_batch(1, 0, 1, [10, 10]),
        copied_batch(1, 0, 1, [10, 0xFFFFFFFFFFFFFFFF]),
        edited(GOOD, 8, b"\0\0"),
        edited(GOOD, 10, b"\x0a"),
        edited(GOOD, 11, b"\x03"),
        edited(GOOD, 11, b"\x00"),
        edited(GOOD, 11, b"\x06"),
        edited(GOOD, 24, b"\x03"),
        edited(GOOD, 24, b"\0\0\0\0"),
        edited(GOOD, 28, b"\0\0\0\0"),
        edited(GOOD, 48, b"\xff\xff\xff\xff"),
        edited(GOOD, 48, b"\x09"),
        edited(GOOD, 52, b"\x00"),
        edited(GOOD, 52, b"\x06"),
        edited(GOOD, 52, b"\x05"),
        encode_batch(1, 0, [encode_record(b"plain\0")])[:-2],
    ],
)
def test_a_malformed_batch_is_refused_and_nothing_of_it_is_written(copier, batch):
    log = copier.machine.log
    end = log.end_position
    assert log.copied.append(CopyPart(SOURCE, 10, batch), NOW).code in (INVALID, SOURCE_MOVED)
    assert log.end_position == end
    assert copier.copy(10).code == OK


def test_an_assigned_id_lies_before_the_message_and_the_source_offset_after_it(copier):
    batch = copied_batch(1, 0, 1, [])
    record = encode_copied_record(b"m\0", 10, bytes(range(16)))
    size = (len(batch) + len(record)).to_bytes(4, "little")
    batch = edited(edited(batch, 4, size), 24, b"\x01") + record
    assert copier.machine.log.copied.append(CopyPart(SOURCE, 10, batch), NOW).code == OK
    (piece,) = copier.machine.log.read(1, 0, 0, 10, 1000)
    assert piece.records == (27).to_bytes(4, "little") + b"\x05" + bytes(range(16)) + b"m\0" + (10).to_bytes(
        8, "little"
    )


def test_an_append_of_a_client_cannot_store_copied_records(copier):
    batch = GOOD + bytes(-len(GOOD) % 8)
    end = copier.machine.log.end_position
    assert copier.machine.log.append(batch, 1, NOW) == [(INVALID, 0)]
    plain = edited(batch, 11, b"\0")
    assert copier.machine.log.append(edited(plain, 28, b"\0\0\0\0"), 1, NOW) == [(INVALID, 0)]
    assert copier.machine.log.end_position == end


def test_a_refused_write_leaves_the_next_offset_and_the_batch_can_be_sent_again(machine):
    copier = Copier(machine)
    copier.accept()
    copier.copy(0)
    machine.env.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        copier.copy(1)
    machine.env.heal()
    assert copier.copy(1) == Copied(OK, 1, 2, 1)
    assert stored_offsets(machine) == [0, 1]


def test_copied_batches_are_refused_while_messages_are(machine):
    copier = Copier(machine)
    copier.accept()
    machine.log.refusal.refuse("disk full: a test; nothing was stored")
    with pytest.raises(DiskFullError, match="disk full: a test"):
        copier.copy(0)
    machine.log.refusal.refuse("")
    machine.log.refusal.follow("the other one leads")
    for refused in (lambda: copier.copy(0), lambda: copier.accept(start=0, replaces=1)):
        with pytest.raises(NotMasterError, match="the other one leads"):
            refused()
    machine.log.refusal.follow("")
    assert copier.copy(0).code == OK
    log = machine.log
    machine.close()
    with pytest.raises(ClosedError):
        log.copied.append(CopyPart(SOURCE, 1, copied_batch(1, 0, 1, [1])), NOW)


def test_a_batch_that_is_larger_than_a_segment_is_refused(copier):
    assert copier.copy(10, size=9000).code == 101
    assert copier.copy(10, size=900).code == OK


def test_a_copied_record_wakes_the_queue(copier):
    log = copier.machine.log
    log.watch(1, 0)
    copier.copy(10)
    assert log.take_woken() == [(1, 0)]
