"""Requests that consumers were given, by a clock that the test turns."""

import pytest

from common.reply_token import ReplyToken, ReplyTokens
from engine.link.codes import CONSUMER_FAILED, NO_CONSUMER, NO_REPLY
from engine.replies import requests
from engine.replies.requests import Requests

TOKENS = ReplyTokens(b"k")


class Desk:
    def __init__(self):
        self.now_ms = 1_000_000
        self.told = []
        self.requests = Requests(lambda: self.now_ms, self.told.append)

    def request(self, call=1, wait_ms=1_000):
        """(token, record) of a request made now."""
        token = TOKENS.make(ReplyToken(call, 7, self.now_ms + wait_ms))
        return token, b"\x2b\0\0\0\x02m\0" + token


@pytest.fixture
def desk():
    return Desk()


def test_a_request_is_over_from_its_deadline_on(desk):
    _, record = desk.request(wait_ms=10)
    desk.now_ms += 9
    assert not desk.requests.is_over(record)
    desk.now_ms += 1
    assert desk.requests.is_over(record)


def test_an_answered_request_is_over_for_every_other_group_and_forgotten_after_its_deadline(desk):
    token, record = desk.request()
    _, open_record = desk.request(call=2)
    desk.requests.given("g", record)
    desk.requests.answered(token)
    assert desk.requests.is_over(record)
    assert not desk.requests.is_over(open_record)
    desk.now_ms += 2_000
    desk.requests.given("g", desk.request(call=3)[1])
    assert desk.requests._answered == {}


def test_who_was_never_given_had_no_consumer_and_who_was_had_no_reply(desk):
    token, record = desk.request()
    assert desk.requests.outcome(token) == NO_CONSUMER
    desk.requests.given("g", record)
    assert desk.requests.outcome(token) == NO_REPLY


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
    assert not desk.requests.is_over(record)
    desk.requests.failed("g", record)
    assert desk.told == [token] and desk.requests.is_over(record)
    desk.now_ms += 2_000  # an answer that was lost is asked for after the deadline, too
    assert desk.requests.outcome(token) == CONSUMER_FAILED
    desk.now_ms += requests.REMEMBERED_MS
    desk.requests.given("g", desk.request(call=3)[1])
    assert desk.requests._answered == {} and desk.requests.outcome(token) == NO_CONSUMER


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


def test_a_full_memory_takes_no_more(desk, monkeypatch):
    monkeypatch.setattr(requests, "REMEMBERED_MAX", 3)
    for call in range(10):
        desk.requests.given("g", desk.request(call)[1])
    assert len(desk.requests) == 3
