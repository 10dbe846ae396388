"""The times of a replay: gaps divided by a factor and bounded, and rows that wait until they are due."""

from array import array
from itertools import pairwise

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.commands.pipeline.replay import target_of
from pipeline.replay_time import due_of_seconds
from pipeline.sink import pace
from pipeline.sink.pace import DueTimes


class FakeTime:
    """A clock that only sleeping advances."""

    def __init__(self):
        self.now_s, self.slept = 100.0, []

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    made = FakeTime()
    monkeypatch.setattr(pace, "time", made)
    return made


def test_gaps_are_divided_by_the_factor_and_none_is_longer_than_the_bound():
    assert due_of_seconds([100, 101, 111, 100_111], speed=10, gap_max_s=5) == [
        (100, 0), (101, 100), (111, 1_100), (100_111, 6_100),
    ]  # fmt: skip
    assert due_of_seconds([], 1, 60) == []


@given(
    st.lists(st.integers(0, 10**6), unique=True, min_size=1, max_size=30),
    st.floats(0.01, 1000),
    st.floats(0.001, 100),
)
def test_times_never_go_back_and_messages_of_a_second_are_due_before_those_of_the_next(seconds, speed, gap_max_s):
    due = due_of_seconds(sorted(seconds), speed, gap_max_s)
    within_ms = 999 * min(1 / speed, gap_max_s)
    for (_, one), (_, following) in pairwise(due):
        assert one + int(within_ms) <= following + 1  # a millisecond by rounding


def test_rows_wait_until_they_are_due_and_those_that_are_late_go_together(clock):
    times = DueTimes()
    rows, due = array("I", range(6)), [0, 0, 500, 500, 2_000, 2_001]
    parts = times.parts(rows, due)
    assert list(next(parts)) == [0, 1]
    assert list(next(parts)) == [2, 3]
    assert clock.now_s == pytest.approx(100.5)
    clock.now_s += 60  # a proxy was slow
    assert list(next(parts)) == [4, 5]
    assert clock.slept == [pytest.approx(0.5)]


def test_rows_without_times_are_one_part(clock):
    assert [list(part) for part in DueTimes().parts(array("I", [3, 4]), None)] == [[3, 4]]
    assert clock.slept == []


@pytest.mark.parametrize(
    ("places", "from_topic", "endpoint", "of_topic"),
    [
        (("dir", "orders"), "", "", []),
        (("target",), "", "", []),
        (("dir", "orders", "target"), "orders", "h:1", []),
        (("target",), "orders", "", []),
        (("dir", "orders", "target"), "", "", ["earliest"]),
    ],
)
def test_arguments_of_a_replay_that_do_not_fit_its_source_are_refused(places, from_topic, endpoint, of_topic):
    with pytest.raises(click.UsageError):
        target_of(places, from_topic, endpoint, of_topic)
