"""Reads of a topic whose queues are at several brokers, and positions that do not exist."""

import json
import struct

import pytest

from engine.client.admin import AdminError
from engine.link.codes import OFFSET_OUT_OF_RANGE, OK, UNAVAILABLE
from engine.link.pieces import AnswerPiece, encode_pieces
from engine.link.record import encode_record
from kafka_bridge.copy_out.engine_reads import EngineReads, MessagesDeleted, QueueLink


class Broker:
    """Answers READ from lists of records per queue, of which the first ones may be deleted."""

    def __init__(self, **queues):
        self.first = {int(name[1:]): first for name, (first, _) in queues.items()}
        self.count = {int(name[1:]): count for name, (_, count) in queues.items()}
        self.code = OK

    def call(self, op, payload):
        if self.code != OK:
            return self.code, b"a sentence"
        reports, pieces = [], []
        for each in json.loads(payload)["positions"]:
            queue, offset = each["queue"], each["offset"]
            first, count = self.first[queue], self.count[queue]
            is_there = first <= offset <= first + count
            reports.append({"code": OK if is_there else OFFSET_OUT_OF_RANGE, "min_offset": first})
            if is_there and offset < first + count:
                records = [encode_record(b"%d\0" % number) for number in range(offset, first + count)]
                pieces.append(AnswerPiece(bytes(48), offset, 0, queue, len(records), 0, 0, b"".join(records)))
        head = json.dumps({"reports": reports}).encode()
        return OK, struct.pack("<I", len(head)) + head + encode_pieces(pieces)


def read(reads, positions):
    found = {}
    was_found = reads.read(positions, 1 << 20, 0, lambda piece: found.update({piece.queue: piece.first_offset}))
    assert was_found == bool(found)
    return found


def reads_of(*brokers):
    return EngineReads("orders", [QueueLink(each, bytes(16), [*each.first]) for each in brokers])


def test_queues_of_several_brokers_are_read_from_their_positions():
    reads = reads_of(Broker(q0=(0, 5), q2=(0, 5)), Broker(q1=(0, 5)))
    assert read(reads, {0: 3, 1: 4, 2: 5}) == {0: 3, 1: 4}


def test_a_queue_without_a_position_begins_at_its_first_message():
    assert read(reads_of(Broker(q0=(40, 5), q1=(0, 2))), {}) == {0: 40, 1: 0}


def test_messages_that_were_deleted_before_they_were_copied_are_named():
    with pytest.raises(MessagesDeleted, match="topic=orders queue=0: messages 7 to 39 were deleted"):
        read(reads_of(Broker(q0=(40, 5))), {0: 7})


def test_a_position_beyond_the_end_does_not_begin_again():
    with pytest.raises(MessagesDeleted, match="the copy is at 46, beyond the end"):
        read(reads_of(Broker(q0=(40, 5))), {0: 46})


def test_a_refused_read_is_raised_with_its_sentence():
    broker = Broker(q0=(0, 1))
    broker.code = UNAVAILABLE
    with pytest.raises(AdminError, match="a sentence"):
        read(reads_of(broker), {})
