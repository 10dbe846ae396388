"""The rare path of requests and replies, in greenlets, and what both paths answer. Its native form is _request_calls.pyx."""

from typing import Any

import gevent
from gevent.event import AsyncResult

from common.contract import Code, Message, SendResult, decode_struct, encode_struct
from common.ids import show_id
from common.wire.calls import BODY_BYTES_MAX, HAS_DELAY, HAS_DELIVER_AT, HAS_REPLY_TO
from producer_proxy.requests.grouped import GroupedRequests
from producer_proxy.requests.requests import OpenRequest

REPLY_WAIT_MS_MAX = 300_000
WAIT_SENTENCES = {
    Code.NO_CONSUMER: "nobody took the request in time; it will not be handed out any more",
    Code.NO_REPLY: "no reply in time; the request will not be handed out any more",
    Code.CONSUMER_FAILED: "the consumer gave the request up",
    Code.TIMEOUT: "this proxy is stopping; the request is stored, and its reply may still have been made",
}
REPLY_SENTENCES = {
    Code.INVALID: "Message.reply_to: not a reply_token of this cluster, or altered",
    Code.DUPLICATE: "Message.reply_to: this request has its reply already",
    Code.STALE_RECEIPT: "Message.reply_to: nobody waits for this reply any more",
    Code.UNAVAILABLE: "the proxy that waits for this reply cannot be reached at the moment",
    Code.TIMEOUT: "nobody said whether the reply arrived; send it again",
}
RETRY_AFTER_MS = 200


class _Asker:
    """A greenlet that waits for a request's outcome."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.outcome: AsyncResult = AsyncResult()

    @property
    def is_gone(self) -> bool:
        return self._connection.closed

    def tell(self, code: int, reply: bytes | None) -> None:
        self.outcome.set((code, reply))


def ask(
    requests: GroupedRequests, lanes, connection: Any, call, destination, key: bytes | None, id16, refusal
) -> SendResult:
    """Store the call's message and block this greenlet until its reply has come or cannot come any more.

    Args:
        lanes: of the call's durability. key: what ties the message to a queue.
        id16: the assigned id; None when the message has one of its own.
        refusal: makes the result of a message that was not stored, from (code, sentence, id).
    """
    (message,) = call.messages
    shown = message.id if id16 is None else show_id(id16)
    asker, opened = _Asker(connection), []

    def token_for(group: int) -> bytes | None:
        found = requests.open(asker, group, call.reply_wait_ms)
        opened.append(found)
        return None if found is None else found.token

    answer: AsyncResult = AsyncResult()
    lanes.ask(destination, key, id16, message.encoded, token_for, answer.set)
    try:
        ((code, queue, offset),) = answer.get(timeout=store_timeout_ms(call) / 1000)
    except gevent.Timeout:
        code = Code.TIMEOUT
    request: OpenRequest | None = opened[0] if opened else None
    if request is None or code not in (Code.OK, Code.DUPLICATE):
        result = refusal(code, None, shown)
        if request is not None:
            request.end()
            result.reply = _reply_of(request.reply)
        return result
    place = None if message.id is None else (destination.name, message.id.encode(), queue, offset)
    request.stored(place, code == Code.DUPLICATE)
    code, reply = asker.outcome.get()
    return SendResult(
        code=code, id=shown, queue=queue, offset=offset, error=WAIT_SENTENCES.get(code), reply=_reply_of(reply)
    )


def store_timeout_ms(call) -> int:
    """How long the append may take."""
    return min(call.timeout_ms, call.reply_wait_ms) if call.timeout_ms > 0 else call.reply_wait_ms


def _reply_of(encoded: bytes | None):
    return None if encoded is None else decode_struct(Message, encoded)


class Replying:
    """A reply on its way, or one that was refused: `wait()` gives its result."""

    def __init__(self, requests: GroupedRequests, message, timeout_ms: int) -> None:
        """Pass the reply on. The message has no fault."""
        self._id, self._sentence = message.id, _reply_fault(message)
        self._code: AsyncResult = AsyncResult()
        code: int | None = Code.INVALID
        if self._sentence is None:
            code = requests.pass_on(message.reply_to, _without_reply_to(message), self._code.set, timeout_ms)
        if code is not None:
            self._code.set(code)

    def wait(self) -> SendResult:
        """Block this greenlet for the result."""
        code = self._code.get()
        retry_after_ms = RETRY_AFTER_MS if 200 <= code < 300 else None
        error = self._sentence or REPLY_SENTENCES.get(code)
        return SendResult(code=code, id=self._id, retry_after_ms=retry_after_ms, error=error)


def fault_of(call) -> str | None:
    """What is wrong with a call that asks for a reply, as a sentence, or None."""
    (message,) = call.messages
    if call.reply_wait_ms > REPLY_WAIT_MS_MAX:
        return f"SendRequest.reply_wait_ms: at most {REPLY_WAIT_MS_MAX}"
    if message.flags & (HAS_DELIVER_AT | HAS_DELAY):
        return "SendRequest.reply_wait_ms: a delayed message cannot be waited for"
    if message.flags & HAS_REPLY_TO or message.operation:
        return "SendRequest.reply_wait_ms: only for a message that is stored, neither a reply nor a CANCEL"
    return None


def _reply_fault(message) -> str | None:
    if message.flags & (HAS_DELIVER_AT | HAS_DELAY) or message.operation:
        return "Message.reply_to: a reply can be neither delayed nor a CANCEL"
    if message.body_size > BODY_BYTES_MAX:
        return f"Message.body: at most {BODY_BYTES_MAX} bytes in a reply"
    return None


def _without_reply_to(message) -> bytes:
    """The reply as its asker gets it."""
    reply = decode_struct(Message, message.encoded)
    reply.reply_to = None
    return encode_struct(reply)
