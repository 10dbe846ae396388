"""Requests that consumers were given, by a clock that the test turns."""

from random import Random
from types import SimpleNamespace

import pytest

from common.believed_time import BelievedTime
from common.reply_token import ReplyToken, ReplyTokens
from engine.link.codes import CONSUMER_FAILED, NO_CONSUMER, NO_REPLY
from engine.log.upkeep.log_time import LogTime
from engine.replies import requests
from engine.replies.requests import Requests

TOKENS = ReplyTokens(b"k")
HOUR_MS = 3_600_000


class Desk:
    def __init__(self):
        self.now_ms = 1_000_000
        self.told = []
        self.ahead_ms = 0  # of the engine's wall clock
        self.newest_ms = 0  # of the log
        self.requests = Requests(
            lambda: self.now_ms + self.ahead_ms, lambda: self.now_ms, self.told.append, lambda: self.newest_ms
        )

    def request(self, call=1, wait_ms=1_000, proxy_ms=0, is_old=False):
        """(token, record) of a request made now by a proxy whose clock is ahead by `proxy_ms`, or of an earlier version."""
        token = TOKENS.make(ReplyToken(call, 7, self.now_ms + proxy_ms + wait_ms, 0 if is_old else wait_ms))
        return token, b"\x2b\0\0\0\x02m\0" + token

    def is_over(self, record, stored_at_ms=None):
        return self.requests.is_over(record, self.now_ms + self.ahead_ms if stored_at_ms is None else stored_at_ms)


class SetClock(Desk):
    """A desk whose wall clock is set. Time is believed, and messages are stamped, as an engine does it."""

    def __init__(self):
        super().__init__()
        believed = BelievedTime(self.wall_ms, lambda: self.now_ms)
        log = SimpleNamespace(stored_ms_min=0)
        view = SimpleNamespace(progress=lambda key: [], put_progress=lambda records: None)
        self._log_time = LogTime(view, BelievedTime(self.wall_ms, lambda: self.now_ms), self.wall_ms, log, 0)
        self.requests = Requests(believed.checked_ms, lambda: self.now_ms, newest_ms=lambda: self._log_time.newest_ms)
        self.turn(5_000)

    def wall_ms(self):
        return self.now_ms + self.ahead_ms

    def stored_ms(self):
        return max(self.wall_ms(), self._log_time.newest_ms)

    def step(self, step_ms):
        self.ahead_ms += step_ms

    def turn(self, ms):
        """Let time pass; the log compares the clocks once per second."""
        for _ in range(ms // 1_000):
            self.now_ms += 1_000
            self._log_time.check()
        self.now_ms += ms % 1_000


@pytest.fixture
def desk():
    return Desk()


@pytest.mark.parametrize("proxy_ms", [0, -50_000, 50_000])
def test_a_request_is_over_when_its_wait_has_passed_by_the_engines_clock(desk, proxy_ms):
    _, record = desk.request(wait_ms=10, proxy_ms=proxy_ms)
    stored_at_ms = desk.now_ms
    desk.now_ms += 9
    assert not desk.is_over(record, stored_at_ms)
    desk.now_ms += 1
    assert desk.is_over(record, stored_at_ms)


def test_a_request_of_a_proxy_of_an_earlier_version_is_over_at_the_deadline_that_it_names(desk):
    token, record = desk.request(wait_ms=10, is_old=True)
    desk.now_ms += 9
    assert not desk.is_over(record)
    desk.now_ms += 1
    assert desk.is_over(record)
    assert desk.requests.outcome(token) == NO_CONSUMER


@pytest.mark.parametrize("ahead_ms", [0, -50_000, 50_000])
def test_a_request_without_a_consumer_is_withdrawn_before_its_asker_is_told(desk, ahead_ms):
    desk.ahead_ms = ahead_ms
    token, record = desk.request(wait_ms=2_000)
    assert not desk.is_over(record)
    assert [desk.requests.outcome(token) for _ in range(2)] == [NO_CONSUMER] * 2
    assert desk.is_over(record)
    desk.ahead_ms -= 3_600_000
    desk.now_ms += 1_999
    desk.requests.given("g", desk.request(call=2)[1])
    assert desk.is_over(record)


def test_where_no_more_can_be_withdrawn_nobody_is_told_that_there_was_no_consumer(desk, monkeypatch):
    monkeypatch.setattr(requests, "REMEMBERED_MAX", 2)
    told = [desk.requests.outcome(desk.request(call=call)[0]) for call in range(3)]
    assert told == [NO_CONSUMER, NO_CONSUMER, NO_REPLY]


@pytest.mark.parametrize("ahead_ms", [-50_000, 50_000])
def test_what_a_group_was_given_is_known_until_after_the_deadline_whatever_the_clock_shows(desk, ahead_ms):
    token, record = desk.request(wait_ms=2_000)
    desk.ahead_ms = ahead_ms
    desk.requests.given("g", record)
    desk.now_ms += 2_000
    desk.requests.given("g", desk.request(call=2)[1])
    assert desk.requests.outcome(token) == NO_REPLY


def test_an_answered_request_is_over_for_every_other_group_and_forgotten_after_its_deadline(desk):
    token, record = desk.request()
    _, open_record = desk.request(call=2)
    desk.requests.given("g", record)
    desk.requests.answered(token)
    assert desk.is_over(record)
    assert not desk.is_over(open_record)
    desk.now_ms += 2_000
    desk.requests.given("g", desk.request(call=3)[1])
    assert desk.requests._ended == {}


def test_who_was_never_given_had_no_consumer_and_who_was_had_no_reply(desk):
    token, record = desk.request()
    assert desk.requests.outcome(token) == NO_CONSUMER
    desk.requests.given("g", record)
    assert desk.requests.outcome(token) == NO_REPLY


@pytest.mark.parametrize("is_given", [False, True])
def test_an_outcome_stays_true_until_a_clock_that_was_set_back_has_caught_up(desk, is_given):
    token, record = desk.request(wait_ms=1_000)
    stored_at_ms = desk.newest_ms = desk.now_ms
    if is_given:
        desk.requests.given("g", record)
    desk.ahead_ms = -3_600_000
    desk.now_ms += 1_000
    assert desk.requests.outcome(token) == (NO_REPLY if is_given else NO_CONSUMER)
    for call in range(2, 2 * 60):
        desk.now_ms += 60_000
        desk.newest_ms = max(desk.newest_ms, desk.now_ms + desk.ahead_ms)
        desk.requests.given("h", desk.request(call)[1])  # any use forgets what it may
        assert desk.is_over(record, stored_at_ms)
    assert desk.requests._ended == {}


STEPS_MS = (0, 0, 50, 2_000, 30_000, 3_600_000, 7_200_000)


@pytest.mark.parametrize("seed", range(40))
def test_no_steps_of_the_clock_bring_a_request_back_whose_asker_waits_no_more(seed):
    """Another request makes the memory forget what it may; this one is looked at by a group that has not pulled before."""
    random, desk = Random(seed), SetClock()
    withdrawn = []
    for call in range(1, 60):
        desk.step(random.choice(STEPS_MS) * random.choice((-1, 1)))
        token, record = desk.request(call, wait_ms=random.choice((150, 150, 2_000, 300_000)))
        stored_at_ms = desk.stored_ms()
        if random.random() < 0.5:
            desk.requests.given("g", record)
        desk.turn(random.choice((1, 150, 2_500, 10_000)))
        if random.random() < 0.7:
            assert desk.requests.outcome(token) in (NO_CONSUMER, NO_REPLY)
            withdrawn.append((record, stored_at_ms))
        assert all(desk.is_over(*each) for each in withdrawn), f"call {call}"


@pytest.mark.parametrize("steps_ms", [(-HOUR_MS,), (HOUR_MS, -2 * HOUR_MS)])
def test_a_withdrawn_request_that_was_forgotten_stays_over_after_a_step_back(steps_ms):
    desk = SetClock()
    token, record = desk.request(wait_ms=150)
    stored_at_ms = desk.stored_ms()
    desk.turn(150)
    assert desk.requests.outcome(token) == NO_CONSUMER
    for step_ms in steps_ms:
        desk.turn(2_500)
        assert desk.requests.outcome(desk.request(call=2)[0]) == NO_CONSUMER
        desk.step(step_ms)
    assert token not in desk.requests._ended
    desk.turn(300)
    assert desk.is_over(record, stored_at_ms)


def test_a_request_that_was_stored_under_a_time_ahead_stays_withdrawn():
    desk = SetClock()
    desk.step(HOUR_MS)
    token, record = desk.request(wait_ms=150)
    stored_at_ms = desk.stored_ms()
    desk.turn(150)
    assert desk.requests.outcome(token) == NO_CONSUMER
    desk.turn(2_500)
    desk.requests.given("g", desk.request(call=2)[1])
    assert token not in desk.requests._ended
    assert desk.is_over(record, stored_at_ms)


def test_after_a_start_whose_clock_is_behind_the_log_its_newest_time_counts(desk):
    _, record = desk.request(wait_ms=150)
    stored_at_ms = desk.now_ms
    desk.ahead_ms = -HOUR_MS
    assert not desk.is_over(record, stored_at_ms)
    desk.newest_ms = stored_at_ms + 150
    assert desk.is_over(record, stored_at_ms)


def test_a_request_whose_asker_waits_no_more_is_not_dispatched_again(desk):
    token, record = desk.request(wait_ms=1_000)
    desk.requests.given("g", record)
    assert not desk.is_over(record)
    assert desk.requests.outcome(token) == NO_REPLY
    assert desk.is_over(record)


def test_the_only_group_that_gives_up_fails_the_request_at_once(desk):
    token, record = desk.request()
    desk.requests.given("g", record)
    desk.requests.failed("g", record)
    desk.requests.failed("g", record)
    assert desk.told == [token]
    assert desk.requests.outcome(token) == CONSUMER_FAILED


def test_a_group_that_gives_up_leaves_the_request_to_another_that_has_it(desk):
    token, record = desk.request()
    desk.requests.given("g", record)
    desk.requests.given("h", record)
    desk.requests.failed("g", record)
    assert (desk.told, desk.requests.outcome(token)) == ([], NO_REPLY)
    desk.requests.failed("h", record)
    assert (desk.told, desk.requests.outcome(token)) == ([token], CONSUMER_FAILED)


def test_a_request_whose_asker_was_told_that_it_failed_is_given_to_no_further_group_and_keeps_its_outcome(desk):
    token, record = desk.request()
    desk.requests.given("g", record)
    assert not desk.is_over(record)
    desk.requests.failed("g", record)
    assert desk.told == [token] and desk.is_over(record)
    desk.now_ms += 2_000  # an answer that was lost is asked for after the deadline, too
    assert desk.requests.outcome(token) == CONSUMER_FAILED
    desk.now_ms += requests.REMEMBERED_MS
    desk.requests.given("g", desk.request(call=3)[1])
    assert desk.requests._ended == {} and desk.requests.outcome(token) == NO_REPLY


def test_what_is_no_request_cannot_fail_one(desk):
    token, record = desk.request()
    desk.requests.given("g", record)
    desk.requests.failed("g", record[:4] + b"\0" + record[5:])
    desk.requests.failed("g", b"\x02\0\0\0\x02m")
    assert (desk.told, desk.requests.outcome(token)) == ([], NO_REPLY)


def test_nothing_is_kept_of_what_was_answered_or_is_long_over(desk):
    token, record = desk.request(call=1)
    desk.requests.given("g", record)
    desk.requests.answered(token)
    assert len(desk.requests) == 0
    for call in range(2, 12):
        desk.requests.given("g", desk.request(call)[1])
    desk.now_ms += 1_000 + requests.REMEMBERED_MS + requests.TICK_MS
    desk.requests.given("g", desk.request(99)[1])
    assert len(desk.requests) == 1


def test_a_full_memory_takes_no_more_and_then_nobody_is_told_that_there_was_no_consumer(desk, monkeypatch):
    monkeypatch.setattr(requests, "REMEMBERED_MAX", 3)
    asked = [desk.request(call) for call in range(10)]
    for _, record in asked:
        desk.requests.given("g", record)
    assert len(desk.requests) == 3
    desk.now_ms += 1_000
    desk.requests.answered(asked[0][0])
    assert desk.requests.outcome(asked[9][0]) == NO_REPLY
    desk.now_ms += requests.REMEMBERED_MS
    assert desk.requests.outcome(desk.request(11)[0]) == NO_CONSUMER


def test_a_group_that_was_given_a_request_is_not_denied_after_it_was_forgotten(desk):
    token, record = desk.request(wait_ms=1_000)
    desk.requests.given("g", record)
    desk.now_ms += 1_000 + requests.REMEMBERED_MS
    desk.requests.given("g", desk.request(2)[1])
    assert len(desk.requests) == 1
    assert desk.requests.outcome(token) == NO_REPLY
