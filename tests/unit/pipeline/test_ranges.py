"""Ranges of offsets: the arithmetic behind partitions, limits per trigger and data that is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import DataLost, OptionsError
from pipeline.options import EARLIEST, LATEST, StartAt, place
from pipeline.proxy.topics import QueueBounds, TopicQueue
from pipeline.source.ranges import OffsetRange, check_start, cut, limited, not_before, ranges_between, resolve

QUEUES = [TopicQueue("a", 0), TopicQueue("a", 1), TopicQueue("b", 0)]
OFFSETS = st.fixed_dictionaries({each: st.integers(0, 500) for each in QUEUES})


@given(OFFSETS, OFFSETS, st.integers(1, 400))
def test_a_limited_trigger_reads_no_more_than_its_limit_and_comes_to_the_end(start, more, limit):
    end = {each: start[each] + more[each] for each in QUEUES}
    at, triggers = start, 0
    while at != end:
        following = limited(at, end, limit)
        taken = sum(following[each] - at[each] for each in QUEUES)
        assert 0 < taken <= limit
        assert taken == min(limit, sum(end[each] - at[each] for each in QUEUES))
        assert all(at[each] <= following[each] <= end[each] for each in QUEUES)
        at, triggers = following, triggers + 1
    assert triggers == -(-sum(more.values()) // limit)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 300)), min_size=1, max_size=5), st.integers(1, 40))
def test_cut_ranges_cover_the_same_offsets_in_at_least_the_number_asked_for(sizes, wanted):
    ranges = [OffsetRange("t", queue, start, start + size) for queue, (start, size) in enumerate(sizes)]
    parts = cut(ranges, wanted)
    assert len(parts) >= min(wanted, sum(each.count for each in ranges))
    covered = [(each.queue, offset) for each in parts for offset in range(each.start, each.end)]
    assert covered == [(each.queue, offset) for each in ranges for offset in range(each.start, each.end)]


def test_a_range_that_begins_before_what_is_stored_fails_or_is_shortened():
    bounds = {TopicQueue("t", 0): QueueBounds(10, 30), TopicQueue("t", 1): QueueBounds(50, 60)}
    ranges = [OffsetRange("t", 0, 5, 20), OffsetRange("t", 1, 0, 40)]
    with pytest.raises(DataLost, match="topic t queue 0: offset 5 is no longer stored, the first one is 10"):
        check_start(ranges, bounds, fail=True)
    assert check_start(ranges, bounds, fail=False) == [OffsetRange("t", 0, 10, 20)]


def test_offsets_have_to_name_every_queue_and_no_other():
    bounds = {each: QueueBounds(0, 9) for each in QUEUES}
    whole = {"a": {0: 1, 1: 2}, "b": {0: 3}}
    assert resolve(StartAt(offsets=whole), bounds, {}) == dict(zip(QUEUES, (1, 2, 3), strict=True))
    with pytest.raises(OptionsError, match="2 queues too many or missing: a/1, c/0"):
        resolve(StartAt(offsets={"a": {0: 1}, "b": {0: 3}, "c": {0: 1}}), bounds, {})


def test_words_name_the_bounds_of_each_queue():
    bounds = {QUEUES[0]: QueueBounds(4, 9)}
    assert resolve(StartAt(EARLIEST), bounds, {}) == {QUEUES[0]: 4}
    assert resolve(StartAt(LATEST), bounds, {}) == {QUEUES[0]: 9}


def test_a_queue_that_is_new_is_read_from_0_and_one_that_is_gone_keeps_its_offset():
    start, end = {QUEUES[0]: 5, QUEUES[2]: 7}, {QUEUES[0]: 9, QUEUES[1]: 3}
    kept = not_before(start, end)
    assert kept == {QUEUES[0]: 9, QUEUES[1]: 3, QUEUES[2]: 7}
    assert [(each.queue, each.start, each.end) for each in ranges_between(start, kept)] == [(0, 5, 9), (1, 0, 3)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Earliest", StartAt("earliest")),
        ("1700000000000", StartAt(time_ms=1_700_000_000_000)),
        ("2023-11-14T22:13:20", StartAt(time_ms=1_700_000_000_000)),
        ("2023-11-14T23:13:20+01:00", StartAt(time_ms=1_700_000_000_000)),
        ('{"a": {"0": 4}}', StartAt(offsets={"a": {0: 4}})),
    ],
)
def test_a_place_may_be_a_word_a_time_or_offsets(text, expected):
    assert place(text) == expected


@pytest.mark.parametrize("text", ["yesterday", '{"a": {"0": -1}}', '{"a": 4}', "{", "12:00"])
def test_a_place_that_is_none_is_refused(text):
    with pytest.raises((ValueError, AttributeError)):
        place(text)
