"""What `penstock send` does with results: refused for now is sent again, anything else is told."""

from common.contract import Code, Message, SendResponse, SendResult
from penstock.commands.send import _send_until


class Identity:
    def credential(self):
        return None


class Link:
    """A proxy that gives each message the next of the codes that were set for its body, and the last one for ever."""

    def __init__(self, **codes: list[int]) -> None:
        self.codes, self.calls = codes, []

    def call(self, request, timeout_s, empty):
        bodies = [message.body.decode() for message in request.messages]
        self.calls.append(bodies)
        return SendResponse(results=[self._result(body) for body in bodies])

    def _result(self, body: str) -> SendResult:
        codes = self.codes[body]
        return SendResult(code=codes.pop(0) if len(codes) > 1 else codes[0], retry_after_ms=1)


def send(link: Link, timeout_s: float = 30.0) -> list[int]:
    batch = [Message(topic="orders", body=body.encode()) for body in link.codes]
    return [result.code for result in _send_until(link, Identity(), batch, None, timeout_s)]


def test_only_what_was_refused_for_now_is_sent_again():
    link = Link(a=[Code.OK], b=[Code.UNAVAILABLE, Code.RATE_LIMITED, Code.OK], c=[Code.UNAVAILABLE, Code.OK])
    assert send(link) == [Code.OK] * 3
    assert link.calls == [["a", "b", "c"], ["b", "c"], ["b"]]


def test_what_is_refused_for_good_or_unknown_is_not_sent_again():
    link = Link(a=[Code.TOO_LARGE, Code.OK], b=[Code.TIMEOUT, Code.OK])
    assert send(link) == [Code.TOO_LARGE, Code.TIMEOUT]
    assert len(link.calls) == 1


def test_the_last_refusal_is_told_when_the_time_is_over():
    assert send(Link(a=[Code.UNAVAILABLE]), timeout_s=0.02) == [Code.UNAVAILABLE]
