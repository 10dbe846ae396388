"""Replies between links: forwarded, confirmed, refused, and what happens when either end goes."""

import pytest

from common.reply_token import ReplyToken, ReplyTokens
from engine.link import layout
from engine.replies.exchange import CONFIRM_MS_MAX, Exchange

TOKENS = ReplyTokens(b"k")
INSTANCE = 7


class Link:
    """A connection that remembers what was sent on it."""

    def __init__(self):
        self.sent = []

    def send_frame(self, op, request_id, code, parts):
        self.sent.append((op, request_id, code, b"".join(parts)))


class Desk:
    def __init__(self):
        self.now_ms = 1_000
        self.exchange = Exchange(lambda: 1_000_000, lambda: 0)
        self.asker, self.replier = Link(), Link()
        self.exchange.listen(self.asker, INSTANCE)
        self.token = TOKENS.make(ReplyToken(3, INSTANCE, 1_001_000))

    def reply(self, request_id=5, body=b"reply"):
        return self.exchange.reply(self.replier, request_id, INSTANCE, self.token + body, self.now_ms)

    def confirm(self, number, code=0, by=None):
        self.exchange.confirmed(by or self.asker, number, code)


@pytest.fixture
def desk():
    return Desk()


def test_a_reply_goes_to_the_link_that_listens_and_is_answered_when_that_confirms_it(desk):
    assert desk.reply()
    head = layout.FORWARD_HEAD.pack(1, 0)
    assert desk.asker.sent == [(layout.FORWARD, layout.UNASKED, 0, head + desk.token + b"reply")]
    assert desk.replier.sent == []
    desk.confirm(1)
    assert desk.replier.sent == [(layout.REPLY, 5, 0, b"")]


def test_the_replier_hears_the_waiting_proxys_own_code(desk):
    desk.reply()
    desk.confirm(1, layout.STALE_RECEIPT)
    assert desk.replier.sent[0][2] == layout.STALE_RECEIPT


def test_nobody_listens_nobody_gets_it(desk):
    desk.exchange.on_closed(desk.asker)
    assert not desk.reply()
    assert desk.replier.sent[0][2] == layout.UNAVAILABLE


def test_a_link_that_breaks_before_it_confirms_leaves_the_replier_in_doubt(desk):
    desk.reply()
    desk.exchange.on_closed(desk.asker)
    assert desk.replier.sent[0][:3] == (layout.REPLY, 5, layout.TIMEOUT)
    desk.confirm(1)
    assert len(desk.replier.sent) == 1


def test_a_link_that_comes_back_takes_the_place_of_the_old_one(desk):
    again = Link()
    desk.exchange.listen(again, INSTANCE)
    desk.exchange.on_closed(desk.asker)
    assert desk.reply()
    assert again.sent[-1][0] == layout.FORWARD


def test_silence_is_answered_with_a_timeout_and_nothing_stays(desk):
    desk.reply()
    assert desk.exchange.on_time(desk.now_ms)
    assert not desk.exchange.on_time(desk.now_ms + CONFIRM_MS_MAX + 200)
    assert desk.replier.sent[0][2] == layout.TIMEOUT


def test_only_the_link_that_was_given_a_reply_can_confirm_it(desk):
    desk.reply()
    desk.confirm(1, by=desk.replier)
    desk.confirm(99)
    assert desk.replier.sent == []


def test_a_consumers_failure_is_told_to_the_waiting_proxy(desk):
    record = b"\x2b\0\0\0\x02m\0" + desk.token
    desk.exchange.requests.given("g", record)
    desk.exchange.requests.failed("g", record)
    head = layout.FORWARD_HEAD.pack(0, layout.CONSUMER_FAILED)
    assert desk.asker.sent == [(layout.FORWARD, layout.UNASKED, 0, head + desk.token)]
