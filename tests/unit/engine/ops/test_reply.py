"""The payloads of request-reply on the link."""

import pytest

from common.reply_token import ReplyToken, ReplyTokens
from engine.env.native import NodeClock
from engine.link import layout
from engine.ops.errors import RequestError
from engine.ops.reply import ReplyOps
from engine.replies.exchange import Exchange

INSTANCE = 7


class Link:
    """A connection that remembers the frames sent on it."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, int, bytes]] = []

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        self.sent.append((op, request_id, code, b"".join(parts)))


class Desk:
    def __init__(self) -> None:
        self.waits: list[bool] = []
        self.ops = ReplyOps(Exchange(lambda: 1_000_000, lambda: 0), NodeClock(), lambda: self.waits.append(True))
        self.asker, self.replier = Link(), Link()


@pytest.fixture
def desk():
    return Desk()


def test_a_reply_is_forwarded_confirmed_and_answered(desk):
    desk.ops.listen(desk.asker, 1, layout.INSTANCE.pack(INSTANCE))
    token = ReplyTokens(b"k").make(ReplyToken(3, INSTANCE, 1_001_000))
    desk.ops.reply(desk.replier, 5, token + b"reply")
    assert desk.waits == [True]
    assert desk.asker.sent[1][3] == layout.FORWARD_HEAD.pack(1, 0) + token + b"reply"
    desk.ops.forwarded(desk.asker, 0, layout.FORWARDED_BODY.pack(1, 0))
    assert desk.replier.sent == [(layout.REPLY, 5, 0, b"")]
    desk.ops.outcome(desk.asker, 9, token)
    assert desk.asker.sent[-1] == (layout.OUTCOME, 9, 0, layout.U16.pack(layout.NO_CONSUMER))


@pytest.mark.parametrize("operation", ["listen", "reply", "forwarded"])
@pytest.mark.parametrize("payload", [b"", b"1", b"x" * 39, b"x" * 200])
def test_damaged_payloads_are_refused(desk, operation, payload):
    with pytest.raises(RequestError):
        getattr(desk.ops, operation)(desk.replier, 5, payload)
