"""One send call, start to end, in a greenlet: the rare path, and the reference for the hot one.

authenticate → topic known and allowed → fault and size → limits → route → append → answer. One result per message, in order.
"""

import logging
import time

import gevent
from gevent.event import AsyncResult

from common import contract
from common.auth_throttle import AuthThrottle
from common.contract import Code, SendResponse, SendResult
from common.errors import AuthenticationError
from common.ids import IdSource, show_id
from common.wire import WireError, walk_send
from common.wire.calls import HAS_REPLY_TO, MESSAGES_MAX
from common.wire.faults import CALL_FAULTS, MESSAGE_FAULTS, WireFault
from producer_proxy.admission.rules import broken_rule
from producer_proxy.buffer.diversion import Aside
from producer_proxy.buffer.fallback import FallbackBuffer
from producer_proxy.requests.calls import Replying, ask, fault_of
from producer_proxy.send.delays import Delays
from producer_proxy.send.topics import ResolveError, binding_of, lane_of

log = logging.getLogger("penstock.producer_proxy")

DEFAULT_TIMEOUT_MS = 3000
TIMEOUT_MS_MAX = 60_000
RETRY_AFTER_MS = 200
OFF_RETRY_AFTER_MS = 5000  # for what an operator has switched off
BACKLOG_RETRY_AFTER_MS = 1000  # consumers have some catching up to do
BODY_BYTES_ANY = 16_384_000  # the topic's own limit is checked once the topic is known
SENTENCES = {
    Code.UNKNOWN_TOPIC: "Message.topic: the broker does not know it; send again",
    Code.INVALID: "the broker refused the message's bytes",
    Code.TOO_LARGE: "larger than the broker takes",
    Code.RATE_LIMITED: "over the rate limit of the topic, the application or this proxy; nothing was stored",
    Code.OVERLOADED: "too much is waiting for the broker; nothing was stored",
    Code.UNAVAILABLE: "the broker cannot be reached; nothing was stored",
    Code.TIMEOUT: "no answer from the broker in time; the message may be stored, send again with the same id",
    Code.SHUTTING_DOWN: "this proxy is stopping; use another one",
}
_ON_ITS_WAY = SendResult(code=Code.OK)  # in place of a reply's result until that is known


class SendService:
    """Answers send calls.

    Args:
        principals: who presents a credential; topics: where to; lanes: the Lanes of MEMORY and of FSYNC; gate: the limits.
        requests: takes sends that wait for a reply, and replies.
        learn: called as (credential bytes, principal) after each good call, so that the hot path knows them.
        buffer: what takes messages that no broker does. brokers: their links for rare operations.
    """

    def __init__(
        self, principals, topics, lanes, gate, requests, now_ms, learn=lambda credential, principal: None, buffer=None,
        brokers=None,
    ):  # fmt: skip
        self._principals, self._topics, self._lanes, self._learn = principals, topics, lanes, learn
        self._gate, self.requests = gate, requests
        self._ids = IdSource(now_ms)
        no_buffer = FallbackBuffer({}, lambda topic: None)
        self._aside = Aside(buffer or no_buffer, lanes, self._ids.next, now_ms, _refusal)
        self._delays = Delays(topics, brokers, now_ms, self._ids.next, _refusal)
        self.brake = AuthThrottle()
        self.closing = False
        self.in_work = self.answered = 0
        self.codes: dict[int, int] = {}

    def handle(self, connection, frame: bytes) -> None:
        """Take one call in a loop callback; the answer comes later by `connection.reply`."""
        self.in_work += 1
        gevent.spawn(self._run, connection, self._answer, frame)

    def rescue(self, connection, frame: bytes, outcomes: list) -> None:
        """Take over a call of the hot path that the broker failed: (code, queue, offset, id) by message, one of them for the buffer."""
        self.in_work += 1
        gevent.spawn(self._run, connection, self._rescued, frame, outcomes)

    def _run(self, connection, answer, *details) -> None:
        try:
            connection.reply(answer(connection, *details))
        except Exception:
            log.exception("connection=%s: a send ended by an error of ours", connection.peer)
            connection.close("internal error")
        finally:
            self.in_work -= 1
            self.answered += 1

    def _answer(self, connection, frame: bytes) -> bytes:
        try:
            call = walk_send(frame, messages_max=MESSAGES_MAX, body_bytes_max=BODY_BYTES_ANY)
        except WireError as error:
            kind = contract.UNKNOWN_METHOD if error.rule == WireFault.METHOD else contract.PROTOCOL_ERROR
            return contract.encode_exception("send", error.seqid, kind, error.sentence)
        return self._encoded(call, self._results(connection, call))

    def _rescued(self, connection, frame: bytes, outcomes: list) -> bytes:
        call = walk_send(frame, messages_max=MESSAGES_MAX, body_bytes_max=BODY_BYTES_ANY)
        return self._encoded(call, self._aside.rescued(call.messages, outcomes, _timeout_s(call)))

    def _encoded(self, call, results: list[SendResult]) -> bytes:
        for result in results:
            if result.code > Code.DUPLICATE:
                self.codes[result.code] = self.codes.get(result.code, 0) + 1
        return contract.encode_reply("send", call.seqid, SendResponse(results=results))

    def _results(self, connection, call) -> list[SendResult]:
        if self.closing:
            return [_refusal(Code.SHUTTING_DOWN) for _ in call.messages]
        try:
            principal = self._principals.find(call.credential, connection)
        except AuthenticationError as error:
            gevent.sleep(self.brake.failed(connection.peer))
            return [_refusal(error.code, str(error)) for _ in call.messages]
        connection.trust()
        if call.fault:
            return [_refusal(*CALL_FAULTS[call.fault]) for _ in call.messages]
        if call.reply_wait_ms > 0:
            return [self._ask(connection, call, principal)]
        started = time.monotonic()
        timeout_ms = int(_timeout_s(call) * 1000)
        replies = {
            index: Replying(self.requests, message, timeout_ms)
            for index, message in enumerate(call.messages)
            if message.flags & HAS_REPLY_TO and not message.fault and not self._gate.feature_off(message)
        }
        if replies:
            self._learn(call.credential, principal)
        results = [
            _ON_ITS_WAY if index in replies else self._refused(message, principal)
            for index, message in enumerate(call.messages)
        ]
        wanted = [index for index, result in enumerate(results) if result is None]
        wanted = self._limited(principal, call.messages, wanted, results)
        self._delays.answer(call, results, _timeout_s(call))
        wanted = [index for index in wanted if results[index] is None]
        if tried := self._aside.tried(call.messages, wanted):
            self._store(call, principal, tried, results, started)
        self._aside.save(call.messages, results, time.monotonic() - started)
        for index, replying in replies.items():
            results[index] = replying.wait()
        return results

    def _ask(self, connection, call, principal) -> SendResult:
        """A request: one message, and the reply to it."""
        (message,) = call.messages
        fault = None if message.fault else fault_of(call)
        refused = _refusal(Code.INVALID, fault, message.id) if fault else self._refused(message, principal)
        if refused is not None:
            return refused
        results: list = [None]
        if not self._limited(principal, call.messages, [0], results):
            return results[0]
        try:
            found = self._topics.find([message.topic])
        except ResolveError as error:
            return _refusal(error.code, str(error), message.id)
        self._learn(call.credential, principal)
        destination = found[message.topic]
        number = lane_of(call.durability, destination)
        if not self._let_in(number, [0], call.messages, found, results):
            return results[0]
        id16 = None if message.id is not None else self._ids.next()
        key = binding_of(message, destination)
        return ask(self.requests, self._lanes[number], connection, call, destination, key, id16, _refusal)

    def _refused(self, message, principal) -> SendResult | None:
        """What is wrong with a message before anything is asked of the broker, or None."""
        if message.fault:
            return _refusal(*MESSAGE_FAULTS[message.fault])
        if off := self._gate.feature_off(message):
            return _refusal(Code.OVERLOADED, off, message.id, OFF_RETRY_AFTER_MS)
        if not principal.may_send(message.topic):
            return _refusal(
                Code.FORBIDDEN, f"application={principal.app}: may not send to topic {message.topic}", message.id
            )
        definition = self._topics.definition(message.topic)
        if definition is None:
            return _refusal(Code.UNKNOWN_TOPIC, f"topic={message.topic}: not defined", message.id)
        if message.body_size > definition.body_bytes_max:
            sentence = f"Message.body: at most {definition.body_bytes_max} bytes for this topic"
            return _refusal(Code.TOO_LARGE, sentence, message.id)
        if off := self._gate.grade_off(definition):
            return _refusal(Code.OVERLOADED, off, message.id, OFF_RETRY_AFTER_MS)
        if not message.operation and (behind := self._gate.depths.reason(message.topic)):
            return _refusal(Code.BACKLOGGED, behind, message.id, BACKLOG_RETRY_AFTER_MS)
        if broken := broken_rule(message, definition):
            return _refusal(Code.INVALID, broken, message.id)
        return None

    def _limited(self, principal, messages, wanted: list[int], results: list) -> list[int]:
        """Those of `wanted` that the rate limits let through; blocks for their hold."""
        passage = self._gate.passage(principal.app)
        broken = {}
        for index in wanted:
            meter = self._gate.topic(self._topics.definition(messages[index].topic))
            broken[index] = passage.admit(meter, messages[index].size)
        for index in filter(broken.get, wanted):
            after_ms = passage.retry_after_ms(broken[index])
            results[index] = _refusal(Code.RATE_LIMITED, None, messages[index].id, after_ms)
        if passage.hold_s > 0:
            gevent.sleep(passage.hold_s)
        return [index for index in wanted if not broken[index]]

    def _store(self, call, principal, wanted: list[int], results: list, started: float) -> None:
        messages = call.messages
        deadline = started + self._aside.patience_s(messages, wanted, _timeout_s(call))
        try:
            found = self._topics.find([messages[index].topic for index in wanted])
        except ResolveError as error:
            for index in wanted:
                results[index] = _refusal(error.code, str(error), messages[index].id)
            return
        self._learn(call.credential, principal)
        lanes: dict[int, list[int]] = {}
        for index in wanted:
            lanes.setdefault(lane_of(call.durability, found[messages[index].topic]), []).append(index)
        lanes = {number: self._let_in(number, indices, messages, found, results) for number, indices in lanes.items()}
        waiting = [self._submit(number, indices, messages, found) for number, indices in lanes.items() if indices]
        for indices, ids, answer in waiting:
            _collect(indices, ids, answer, deadline, results)

    def _let_in(self, number: int, indices: list[int], messages, found, results: list) -> list[int]:
        """Those that may join the queue of where they go: by grade, the highest first, all that a broker gets of one grade or none."""
        lanes, taken = self._lanes[number], 0
        by_grade: dict[int, list[int]] = {}
        for index in indices:
            by_grade.setdefault(found[messages[index].topic].grade, []).append(index)
        for _, members in sorted(by_grade.items()):
            for index in members:
                message = messages[index]
                destination = found[message.topic]
                if not lanes.lets_in(destination, binding_of(message, destination), taken, len(members)):
                    results[index] = _refusal(Code.OVERLOADED, None, message.id)
            taken += sum(results[index] is None for index in members)
        return [index for index in indices if results[index] is None]

    def _submit(self, number: int, indices: list[int], messages, found):
        ids, batch = [], []
        for index in indices:
            message = messages[index]
            id16 = None if message.id is not None else self._ids.next()
            ids.append(message.id if id16 is None else show_id(id16))
            destination = found[message.topic]
            batch.append((destination, binding_of(message, destination), id16, message.encoded))
        answer = AsyncResult()
        self._lanes[number].submit(batch, answer.set)
        return indices, ids, answer


def _timeout_s(call) -> float:
    return min(call.timeout_ms or DEFAULT_TIMEOUT_MS, TIMEOUT_MS_MAX) / 1000


def _collect(indices: list[int], ids: list[str], answer: AsyncResult, deadline: float, results: list) -> None:
    try:
        outcomes = answer.get(timeout=max(0.0, deadline - time.monotonic()))
    except gevent.Timeout:
        outcomes = [(Code.TIMEOUT, 0, -1)] * len(indices)
    for index, shown, (code, queue, offset) in zip(indices, ids, outcomes, strict=True):
        if code in (Code.OK, Code.DUPLICATE):
            results[index] = SendResult(code=code, id=shown, queue=queue, offset=offset)
        else:
            results[index] = _refusal(code, None, shown)


def _refusal(
    code: int, sentence: str | None = None, shown_id: str | None = None, retry_after_ms: int = RETRY_AFTER_MS
) -> SendResult:
    after_ms = retry_after_ms if 200 <= code < 300 else None
    return SendResult(code=code, id=shown_id, retry_after_ms=after_ms, error=sentence or SENTENCES.get(code, ""))
