"""Sends that wait for a reply, and sends that are one. Steps, tokens and codes: docs/design/0013-request-reply.md.

Everything kept here belongs to calls that are open, or were until their deadline: where this process goes, they end with it.
"""

import os
from heapq import heappop, heappush
from typing import Any

import gevent
from gevent.event import AsyncResult

from common.contract import Code, Message, SendResult, decode_struct
from common.ids import IdSource, show_id
from common.reply_token import TOKEN_SIZE, ReplyToken, ReplyTokens, read_token
from common.wire.calls import BODY_BYTES_MAX, HAS_DELAY, HAS_DELIVER_AT, HAS_REPLY_TO
from engine.client.requests import decode_appended, encode_request
from engine.link import layout
from engine.link.errors import LinkDown

REPLY_WAIT_MS_MAX = 300_000
FATE_S_MAX = 1.0
OPEN_MAX = 100_000
WAIT_SENTENCES = {
    Code.NO_CONSUMER: "nobody took the request in time; it will not be handed out any more",
    Code.NO_REPLY: "no reply in time; the request will not be handed out any more",
    Code.CONSUMER_FAILED: "the consumer gave the request up",
    Code.TIMEOUT: "this proxy is stopping; the request is stored, and its reply may still have been made",
}
REPLY_SENTENCES = {
    Code.DUPLICATE: "Message.reply_to: this request has its reply already",
    Code.STALE_RECEIPT: "Message.reply_to: nobody waits for this reply any more",
    Code.UNAVAILABLE: "the proxy that waits for this reply cannot be reached at the moment",
    Code.TIMEOUT: "nobody said whether the reply arrived; send it again",
}


class _Call:
    """One request on its way. `outcome` becomes (code, reply or None) once."""

    __slots__ = ("answered", "connection", "outcome")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.outcome: AsyncResult = AsyncResult()
        self.answered = False  # by a reply

    @property
    def waits(self) -> bool:
        return not self.outcome.ready() and not self.connection.closed


class Requests:
    """The waiting calls of this process.

    Args:
        rpc: the broker's link for what is rare; this object listens on it.
        random_bytes: as os.urandom.
    """

    def __init__(self, rpc, cluster_key: bytes, now_ms, random_bytes=os.urandom) -> None:
        self._rpc, self._now_ms = rpc, now_ms
        self._tokens = ReplyTokens(cluster_key)
        self._ids = IdSource(now_ms)
        self._instance = int.from_bytes(random_bytes(8), "little")
        self._last_call = 0
        self._calls: dict[int, _Call] = {}
        self._ends: list[tuple[int, int]] = []  # heap of (deadline, call)
        self._links = 0
        self.asked = self.late = self.replies = 0
        rpc.attend(self._listen, self._on_forward)

    @property
    def waiting(self) -> int:
        """Calls whose deadline has not passed; some of them have been answered."""
        return len(self._calls)

    # -- the asker's side

    def ask(self, connection: Any, call, topic_id: int, queue: int, durability: int) -> SendResult:
        """Store the call's message and block this greenlet until its reply has come or cannot come any more.

        Args:
            topic_id, queue: where, at this broker.
            durability: layout.MEMORY or layout.FSYNC.
        """
        (message,) = call.messages
        self._forget_due()
        if len(self._calls) >= OPEN_MAX:
            return _result(Code.OVERLOADED, error="too many requests are waiting here; use another proxy")
        self.asked += 1
        token = self._token(self._now_ms() + call.reply_wait_ms)
        waiting = self._calls[token.call] = _Call(connection)
        heappush(self._ends, (token.reply_by_ms, token.call))
        id16 = None if message.id is not None else self._ids.next()
        result = SendResult(id=message.id if id16 is None else show_id(id16), queue=queue)
        data = self._tokens.make(token)
        payload = encode_request(topic_id, queue, id16, message.encoded, data, durability)
        links = self._links
        try:
            self._store(payload, call, token, result)
            if result.code == Code.OK:
                self._wait(waiting, token, data, result, links)
            if waiting.answered:
                result.reply = decode_struct(Message, waiting.outcome.get()[1])
                result.reply.reply_to = None
        finally:
            waiting.outcome.set((Code.NO_REPLY, None))  # late replies find that nobody waits
        return result

    def release(self) -> None:
        """The process ends: whoever still waits is told that the outcome is unknown."""
        for call in self._calls.values():
            if call.waits:
                call.outcome.set((Code.TIMEOUT, None))

    def _token(self, reply_by_ms: int) -> ReplyToken:
        self._last_call = self._last_call % 0xFFFFFFFF + 1
        return ReplyToken(self._last_call, self._instance, reply_by_ms)

    def _store(self, payload: bytes, call, token: ReplyToken, result: SendResult) -> None:
        wait_ms = token.reply_by_ms - self._now_ms()
        timeout_s = (min(call.timeout_ms, wait_ms) if call.timeout_ms > 0 else wait_ms) / 1000
        code, answer = self._rpc.call(layout.APPEND, payload, timeout_s)
        if code == layout.OK:
            code, offset = decode_appended(answer)
            result.offset = offset if code in (Code.OK, Code.DUPLICATE) else None
        result.code = code
        if result.offset is None:
            result.queue = None
            result.error = {
                Code.TIMEOUT: "no answer from the broker in time; the request may be stored",
                Code.UNAVAILABLE: "the broker cannot be reached; nothing was stored",
            }.get(code, answer.decode("utf-8", "replace"))

    def _wait(self, waiting: _Call, token: ReplyToken, data: bytes, result: SendResult, links: int) -> None:
        left_s = max(0.0, (token.reply_by_ms - self._now_ms()) / 1000)
        try:
            code, _ = waiting.outcome.get(timeout=left_s)
        except gevent.Timeout:
            waiting.outcome.set((Code.NO_REPLY, None))  # from here on a reply is late
            # What another engine process was told of the request is forgotten.
            code = self._fate(data) if links == self._links else Code.NO_REPLY
        if code != Code.OK:
            result.code, result.error = code, WAIT_SENTENCES[code]

    def _fate(self, data: bytes) -> int:
        code, answer = self._rpc.call(layout.OUTCOME, data, FATE_S_MAX)
        return layout.U16.unpack(answer)[0] if code == layout.OK else Code.NO_REPLY

    def _forget_due(self) -> None:
        now_ms = self._now_ms()
        while self._ends and self._ends[0][0] < now_ms:
            self._calls.pop(heappop(self._ends)[1], None)

    # -- what the broker tells

    def _listen(self) -> None:
        self._links += 1
        self._rpc.send(layout.LISTEN, layout.INSTANCE.pack(self._instance), lambda code, answer: None)

    def _on_forward(self, payload: bytes) -> None:
        number, code = layout.FORWARD_HEAD.unpack_from(payload)
        at = layout.FORWARD_HEAD.size
        token = read_token(payload[at : at + TOKEN_SIZE])
        call = self._calls.get(token.call) if token is not None else None
        if code != layout.OK:
            if call is not None and call.waits:
                call.outcome.set((code, None))
            return
        self._rpc.tell(
            layout.FORWARDED, layout.FORWARDED_BODY.pack(number, self._take(call, payload[at + TOKEN_SIZE :]))
        )

    def _take(self, call: _Call | None, reply: bytes) -> int:
        if call is not None and call.answered:
            return Code.DUPLICATE
        if call is None or not call.waits:
            self.late += 1
            return Code.STALE_RECEIPT
        call.answered = True
        call.outcome.set((Code.OK, reply))
        return Code.OK

    # -- the replier's side

    def reply(self, message) -> "Replying":
        """Pass a reply on; its result comes from what is returned. The message has no fault."""
        fault = _reply_fault(message)
        token = self._tokens.check(message.reply_to)
        if fault or token is None:
            sentence = fault or "Message.reply_to: not a reply_token of this cluster, or altered"
            return Replying(_result(Code.INVALID, message.id, sentence))
        if token.reply_by_ms <= self._now_ms():
            self.late += 1
            return Replying(_result(Code.STALE_RECEIPT, message.id))
        replying = Replying(_result(Code.TIMEOUT, message.id))
        try:
            self._rpc.send(layout.REPLY, message.reply_to + message.encoded, replying.answered)
        except LinkDown:
            return Replying(_result(Code.UNAVAILABLE, message.id))
        self.replies += 1
        return replying


class Replying:
    """A reply on its way, or one that was refused: `wait()` gives its result."""

    def __init__(self, result: SendResult) -> None:
        self._result = result
        self._code: AsyncResult | None = AsyncResult() if result.code == Code.TIMEOUT else None

    def answered(self, code: int, sentence: bytes) -> None:
        """The broker's answer; in a loop callback."""
        assert self._code is not None
        self._code.set(code)

    def wait(self, timeout_s: float) -> SendResult:
        """Block this greenlet for the result; TIMEOUT when nobody answers in time."""
        if self._code is not None:
            try:
                code = self._code.get(timeout=timeout_s)
            except gevent.Timeout:
                code = Code.TIMEOUT
            self._result = _result(code, self._result.id)
        return self._result


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


def _result(code: int, shown_id: str | None = None, error: str | None = None) -> SendResult:
    retry_after_ms = 200 if 200 <= code < 300 else None
    return SendResult(code=code, id=shown_id, retry_after_ms=retry_after_ms, error=error or REPLY_SENTENCES.get(code))
