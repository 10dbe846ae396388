"""Tails of partitions behind a copy: read once the copy has stalled, and only as far as needed."""

from contextlib import closing

import pytest

from common.kafka.copy_mark import COPY_HEADER, CopyMark, content_hash
from common.kafka.records import Partition, Records
from migration.tails import CopyTails

ONE, TWO = Partition("t", 0), Partition("t", 1)
PLACES = {ONE: ("log", 7), TWO: ("log", 7)}


class Reader:
    """Partitions as {partition: (offsets of records, end)}; everything else is control records."""

    def __init__(self, content) -> None:
        self.content, self.assigned, self.closed = content, [], 0
        self.headers = {}

    def assign(self, positions):
        self.assigned.append(dict(positions))
        self.positions = dict(positions)

    def poll(self, wait_s):
        found = []
        for each, at in list(self.positions.items()):
            offsets, end = self.content[each]
            if at < end:
                rest = [offset for offset in offsets if offset >= at]
                columns = [
                    rest,
                    [0] * len(rest),
                    *([[None] * len(rest)] * 2),
                    [self.headers.get(at, ()) for at in rest],
                ]
                found.append(Records(each, end, *columns))
                self.positions[each] = end
        return found

    def close(self):
        self.closed += 1


@pytest.fixture
def reader():
    return Reader({ONE: ([], 12), TWO: ([13, 14], 15)})


def passed(tails, one, two, ends=(12, 15)):
    found = tails.passed({ONE: one, TWO: two}, dict(zip((ONE, TWO), ends, strict=True)), PLACES)
    return found[ONE], found[TWO]


def test_a_stalled_copy_has_passed_what_holds_no_record_and_stops_at_the_first_one(reader):
    tails = CopyTails(lambda: reader)
    assert passed(tails, 10, 10) == (10, 10), "it may be copying just now"
    assert tails.uncopied("t", {ONE: 10, TWO: 10}) == (), "nothing is read yet"
    assert passed(tails, 10, 10) == (12, 13)
    assert tails.uncopied("t", {ONE: 12, TWO: 13}) == ((1, 13),)
    assert tails.uncopied("t", {ONE: 12, TWO: 14}) == tails.uncopied("other", {ONE: 12, TWO: 13}) == ()
    assert passed(tails, 10, 10) == (12, 13)
    assert reader.assigned == [{ONE: 10, TWO: 10}], "it is read once"


def test_a_record_that_the_engine_cannot_store_is_told_once_the_copy_stands_before_it(reader):
    reader.headers = {13: (("h", b"x" * 40_000),)}
    tails = CopyTails(lambda: reader)
    passed(tails, 10, 10)
    assert tails.unstorable("t", {ONE: 10, TWO: 10}) == {}
    assert passed(tails, 10, 10) == (12, 13)
    (told,) = tails.unstorable("t", {ONE: 12, TWO: 13}).values()
    assert "partition 1 offset 13: its headers and its key need 40," in told and "kafka accept t " in told


def test_a_copy_that_moves_or_is_at_the_end_is_not_read(reader):
    tails = CopyTails(lambda: reader)
    for at in range(5):
        assert passed(tails, 12, at) == (12, at)
    assert reader.assigned == []


def test_an_end_that_grows_is_read_from_where_the_tail_ended(reader):
    tails = CopyTails(lambda: reader)
    passed(tails, 10, 15)
    assert passed(tails, 10, 15) == (12, 15)
    reader.content[ONE] = ([20], 21)
    assert passed(tails, 10, 15, (21, 15)) == (20, 15)
    assert reader.assigned == [{ONE: 10}, {ONE: 12}]
    assert passed(tails, 21, 15, (21, 15)) == (21, 15), "it was copied"


def test_the_reader_is_opened_for_the_first_tail_and_closed(reader):
    tails = CopyTails(lambda: reader)
    tails.close()
    passed(tails, 10, 10)
    passed(tails, 10, 10)
    tails.close()
    assert reader.closed == 1


def test_a_record_that_was_copied_from_the_topic_itself_is_passed_over_and_any_other_one_is_not(reader):
    own = CopyMark("log", 7, 1, 5, content_hash(None, None))
    reader.headers = {13: ((COPY_HEADER, own.encode()),), 14: ((COPY_HEADER, own._replace(topic_id=8).encode()),)}
    with closing(CopyTails(lambda: reader)) as tails:
        passed(tails, 10, 10)
        assert passed(tails, 10, 10) == (12, 14)
