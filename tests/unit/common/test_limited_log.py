"""Log lines that can repeat, under a clock of the test."""

import logging

import pytest

from common.limited_log import KINDS_MAX, LimitedLog


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(clock):
    return LimitedLog(logging.getLogger("penstock.limited"), 60.0, clock)


def test_a_kind_of_line_comes_once_per_minute_with_the_number_of_those_left_out(log, clock, caplog):
    for number in range(1000):
        log.warning("APPEND refused: %d", number)
    assert caplog.messages == ["APPEND refused: 0"]
    clock.now_s = 60.0
    log.warning("APPEND refused: %d", 1000)
    assert caplog.messages[1:] == ["APPEND refused: 1000 (999 more of these since the last line)"]
    clock.now_s = 120.0
    log.warning("APPEND refused: %d", 1001)
    assert caplog.messages[2:] == ["APPEND refused: 1001"]


def test_kinds_differ_by_sentence_and_by_what_they_are_about(log, caplog):
    caplog.set_level(logging.INFO)
    for name in ("a", "b", "a"):
        log.warning("group=%s: open", name, about=name)
        log.info("group=%s: closed", name)
    assert caplog.messages == ["group=a: open", "group=a: closed", "group=b: open"]


def test_what_was_left_out_is_told_although_the_kind_does_not_come_again(log, clock, caplog):
    for _ in range(3):
        log.error("disk: %s", "full")
    clock.now_s = 61.0
    log.error("another")
    assert caplog.messages == ["disk: full", "another", "2 more lines were left out: disk: %s"]
    clock.now_s = 200.0
    log.error("another")
    assert caplog.messages[3:] == ["another"]


def test_lines_about_many_things_share_one_limit_so_that_the_table_stays_small(log, caplog):
    for number in range(3 * KINDS_MAX):
        log.error("topic=%d: lost", number, about=str(number))
    assert len(caplog.messages) == KINDS_MAX + 1


def test_a_failure_is_logged_with_its_traceback_and_the_place_of_the_caller(log, caplog):
    try:
        raise KeyError("lost")
    except KeyError:
        log.exception("callback failed")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.filename == "test_limited_log.py"
