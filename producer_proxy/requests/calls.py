"""The rare path of requests and replies, in greenlets, and the sentences of both paths.

The hot path of requests is hot/_request_calls.pyx.
"""

from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import AsyncResult

from common.contract import Code, Message, SendResult, decode_struct, encode_struct
from common.wire.calls import BODY_BYTES_MAX, HAS_DELAY, HAS_DELIVER_AT, HAS_REPLY_TO, SendCall
from common.wire.calls import Message as WalkedMessage
from producer_proxy.requests.grouped import GroupedRequests
from producer_proxy.requests.requests import OpenRequest
from producer_proxy.targets.base import MessageSlice, SendTarget

REPLY_WAIT_MS_MAX = 300_000
WAIT_SENTENCES = {
    Code.NO_CONSUMER: "no consumer took the request in time; it will not be delivered any more",
    Code.NO_REPLY: "no reply in time; the request will not be delivered any more",
    Code.CONSUMER_FAILED: "the consumer rejected the request",
    Code.TIMEOUT: "this proxy is stopping; the request is stored, and a reply may still be made",
}
REPLY_SENTENCES = {
    Code.INVALID: "Message.reply_to: not a reply_token that this application has pulled, or altered",
    Code.STALE_RECEIPT: "Message.reply_to: no call waits for this reply any more",
    Code.UNAVAILABLE: "the proxy that waits for this reply cannot be reached now; send it again",
    Code.TIMEOUT: "no answer whether the reply arrived; send it again",
}
RETRY_AFTER_MS = 200


class _GreenletAsker:
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
    requests: GroupedRequests, target: SendTarget, durability: int, connection: Any, application: str, call: SendCall,
    message: MessageSlice, shown_id: str, not_stored: Callable[[int], SendResult],
) -> SendResult:  # fmt: skip
    """Store the call's message and block this greenlet until its reply arrives or can no longer arrive.

    Args:
        durability: the class as which the target serves the message.
        not_stored: makes the result of a message that was not stored, or may not be.
    """
    asker, opened = _GreenletAsker(connection), []

    def token_for(group: int) -> bytes | None:
        found = requests.open(asker, group, call.reply_wait_ms)
        opened.append(found)
        return None if found is None else found.token

    answer: AsyncResult = AsyncResult()
    target.ask(durability, message, token_for, answer.set)
    try:
        ((code, queue, offset),) = answer.get(timeout=store_timeout_ms(call) / 1000)
    except gevent.Timeout:
        code = Code.TIMEOUT
    request: OpenRequest | None = opened[0] if opened else None
    if request is None and code == Code.DUPLICATE:  # found before it was sent: the first copy went to another queue
        return SendResult(code=code, id=shown_id, queue=queue, offset=offset)
    if request is None or code not in (Code.OK, Code.DUPLICATE):
        result = not_stored(code)
        if request is not None:
            request.end()
            result.reply = _reply_of(request.reply)
        return result
    has_own_id = message.assigned_id is None
    place = (application, message.destination.name, shown_id.encode(), queue, offset) if has_own_id else None
    request.stored(place, code == Code.DUPLICATE)
    code, reply = asker.outcome.get()
    return SendResult(
        code=code, id=shown_id, queue=queue, offset=offset, error=WAIT_SENTENCES.get(code), reply=_reply_of(reply)
    )


def store_timeout_ms(call: SendCall) -> int:
    """Maximum time of the append."""
    return min(call.timeout_ms, call.reply_wait_ms) if call.timeout_ms > 0 else call.reply_wait_ms


def _reply_of(encoded: bytes | None) -> Message | None:
    return None if encoded is None else decode_struct(Message, encoded)


class PassedReply:
    """A sent or refused reply; `wait()` returns its result."""

    def __init__(self, requests: GroupedRequests, application: str, message: WalkedMessage, timeout_ms: int) -> None:
        """Pass the application's reply on. The message has no fault."""
        self._id, self._sentence = message.id, _reply_fault(message)
        self._code: AsyncResult = AsyncResult()
        code: int | None = Code.INVALID
        if self._sentence is None:
            key, reply = requests.reply_key(application), _without_reply_to(message)
            code = requests.pass_on(message.reply_to, key, reply, self._code.set, timeout_ms)
        if code is not None:
            self._code.set(code)

    def wait(self) -> SendResult:
        """Block this greenlet for the result."""
        code = self._code.get()
        retry_after_ms = RETRY_AFTER_MS if 200 <= code < 300 else None
        error = self._sentence or REPLY_SENTENCES.get(code)
        return SendResult(code=code, id=self._id, retry_after_ms=retry_after_ms, error=error)


def fault_of(call: SendCall) -> str | None:
    """The fault of a request, as a sentence; None: no fault."""
    (message,) = call.messages
    if call.reply_wait_ms > REPLY_WAIT_MS_MAX:
        return f"SendRequest.reply_wait_ms: at most {REPLY_WAIT_MS_MAX}"
    if message.flags & (HAS_DELIVER_AT | HAS_DELAY):
        return "SendRequest.reply_wait_ms: a delayed message cannot be waited for; leave its time unset"
    if message.flags & HAS_REPLY_TO or message.operation:
        return "SendRequest.reply_wait_ms: only for a message that is stored, neither a reply nor a CANCEL"
    return None


def _reply_fault(message: WalkedMessage) -> str | None:
    if message.flags & (HAS_DELIVER_AT | HAS_DELAY) or message.operation:
        return "Message.reply_to: a reply can be neither delayed nor a CANCEL"
    if message.body_size > BODY_BYTES_MAX:
        return f"Message.body: at most {BODY_BYTES_MAX} bytes in a reply"
    return None


def _without_reply_to(message: WalkedMessage) -> bytes:
    """The reply in the form for its asker."""
    reply = decode_struct(Message, message.encoded)
    reply.reply_to = None
    return encode_struct(reply)
