"""One send call, start to end, in a greenlet: the rare path, and the reference of the hot one.

authenticate → check each message → limits → delays → diversion → resolve → admission to the queue → append → answer.
Each message is one PendingMessage; the stages set its result. The answer has one result per message, in order.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import gevent

from common import contract
from common.auth_throttle import AuthThrottle
from common.contract import Code, SendResponse, SendResult
from common.credential import Principal
from common.errors import AuthenticationError
from common.ids import IdSource
from common.limited_log import LimitedLog
from common.principals import Principals
from common.tracing.records import SpanQueue
from common.wire import WireError, walk_send
from common.wire.calls import HAS_REPLY_TO, MESSAGES_MAX, SendCall
from common.wire.faults import CALL_FAULTS, CallFault, WireFault
from engine.link.codes import CLAIMED
from producer_proxy.admission.admission import SendAdmission
from producer_proxy.buffer.fallback import FallbackBuffer
from producer_proxy.requests.calls import PassedReply, ask, fault_of
from producer_proxy.requests.grouped import GroupedRequests
from producer_proxy.send.checks import MessageChecks
from producer_proxy.send.delays import DelayStage
from producer_proxy.send.diversion import Diversion, HotOutcome
from producer_proxy.send.pending import PendingMessage, open_ones
from producer_proxy.send.results import FENCED_RETRY_AFTER_MS, refusal
from producer_proxy.send.returned import ReturnedMessages
from producer_proxy.send.submission import Group, Submission, admitted, by_wait, grouped
from producer_proxy.send.topic_sends import SendOutcomes
from producer_proxy.send.tracing import trace_of
from producer_proxy.targets.base import Asker, ResolveError
from producer_proxy.targets.topics import Topics
from producer_proxy.topic_figures import TopicFigures

limited = LimitedLog(logging.getLogger("penstock.producer_proxy"))

DEFAULT_TIMEOUT_MS = 3000
TIMEOUT_MS_MAX = 60_000
BODY_BYTES_ANY = 16_384_000  # the topic's own limit is checked once the topic is known

Learn = Callable[[bytes, Principal], None]


def application_of(connection: Any) -> str:
    """The application of a connection's last call; "" before one had a valid credential."""
    hot = getattr(connection, "last", None)  # None: its last call took the rare path, which has left the name
    return connection.context or "" if hot is None else hot.application


class SendService:
    """Answers send calls.

    Args:
        principals: credentials and their applications. topics: definitions, targets and destinations.
        requests: takes sends that wait for a reply, and replies.
        buffer: takes diverted messages.
        learn: called as (credential bytes, principal) after each good call, so that the hot path knows them.
    Attributes:
        spans: where traces of calls are put; None: nothing is traced.
    """

    def __init__(
        self, principals: Principals, topics: Topics, admission: SendAdmission, requests: GroupedRequests,
        buffer: FallbackBuffer, now_ms: Callable[[], int], learn: Learn = lambda credential, principal: None,
    ) -> None:  # fmt: skip
        self._principals, self._topics, self._learn = principals, topics, learn
        self.outcomes = SendOutcomes(topics.definition, time.monotonic)
        self._admission, self.requests = admission, requests
        self._ids = IdSource(now_ms)
        self._checks = MessageChecks(topics, admission)
        self._diversion = Diversion(buffer, topics.targets, self._ids.next, now_ms)
        self._returned = ReturnedMessages(now_ms)
        self._delays = DelayStage(topics, now_ms, self._ids.next, self._returned)
        self.brake = AuthThrottle()
        self.closing = False
        self.spans: SpanQueue | None = None
        self.in_work = self.answered = 0
        self.codes: dict[int, int] = {}
        self.figures: TopicFigures | None = None
        """Counts refusals by topic; None: nobody does."""

    def handle(self, connection: Any, frame: bytes) -> None:
        """Take one call in a loop callback; the answer comes later by `connection.reply`."""
        self.in_work += 1
        gevent.spawn(self._run, connection, self._answer, frame)

    def handle_chosen(self, connection: Any, frame: bytes) -> None:
        """As handle(), for a call that the hot path has chosen to be traced."""
        self.in_work += 1
        gevent.spawn(self._run, connection, self._answer, frame, True)

    def rescue(self, connection: Any, frame: bytes, outcomes: list[HotOutcome]) -> None:
        """Take over a hot-path call in which the engine failed a message of a buffered topic."""
        self.in_work += 1
        gevent.spawn(self._run, connection, self._rescued, frame, outcomes)

    def _run(self, connection: Any, answer: Callable[..., bytes], *details: Any) -> None:
        try:
            connection.reply(answer(connection, *details))
        except Exception:
            limited.exception("connection=%s: send: internal error, connection closed", connection.peer)
            connection.close("internal error")
        finally:
            self.in_work -= 1
            self.answered += 1

    def _answer(self, connection: Any, frame: bytes, is_chosen: bool = False) -> bytes:
        try:
            call = walk_send(frame, messages_max=MESSAGES_MAX, body_bytes_max=BODY_BYTES_ANY)
        except WireError as error:
            kind = contract.UNKNOWN_METHOD if error.rule == WireFault.METHOD else contract.PROTOCOL_ERROR
            return contract.encode_exception("send", error.seqid, kind, error.sentence)
        spans = self.spans
        if spans is not None:
            call.trace = trace_of(spans, call, is_chosen or spans.is_chosen())
        began_s = time.monotonic() if call.reply_wait_ms <= 0 else None
        results = self._results(connection, call)
        if call.trace is not None:
            call.trace.end(call, results, connection.context or "")
        return self._encoded(connection, call, results, began_s)

    def _rescued(self, connection: Any, frame: bytes, outcomes: list[HotOutcome]) -> bytes:
        call = walk_send(frame, messages_max=MESSAGES_MAX, body_bytes_max=BODY_BYTES_ANY)
        followed = self._followed(call, outcomes)
        return self._encoded(connection, call, self._diversion.rescued(call.messages, followed, _timeout_s(call)))

    def _followed(self, call: SendCall, outcomes: list[HotOutcome]) -> list[HotOutcome]:
        """Send the messages again whose id is claimed for another queue than the hot path chose."""
        claimed = {
            index: PendingMessage(call.messages[index]) for index, each in enumerate(outcomes) if each[0] == CLAIMED
        }
        if not claimed:
            return outcomes
        pending, deadline_s = list(claimed.values()), time.monotonic() + _timeout_s(call)
        try:
            routes = self._topics.find([each.message.topic for each in pending])
        except ResolveError as error:
            return [(error.code, *each[1:]) if each[0] == CLAIMED else each for each in outcomes]
        for each in pending:
            each.route = routes[each.message.topic]
        groups = grouped(pending, call.durability)
        for submission in [Submission(*group, self._ids.next) for group in groups.items()]:
            submission.collect(deadline_s)
        followed = list(outcomes)
        for index, each in claimed.items():
            assert each.result is not None
            followed[index] = (int(each.result.code), each.result.queue, each.result.offset, outcomes[index][3])
        return followed

    def _note(
        self, figures: TopicFigures, connection: Any, call: SendCall, results: list[SendResult], began_s: float | None
    ) -> None:
        """Tell the figures of topics what was refused, and how long a taken call to one topic has lasted."""
        # The name of a faulty message may be missing, or no UTF-8.
        topics = [b"" if each.fault else each.topic.encode() for each in call.messages]
        for topic, result in zip(topics, results, strict=False):
            if result.code > Code.DUPLICATE:
                known = result.code != Code.UNAUTHENTICATED  # a connection's earlier calls may have had a credential
                figures.refused(topic, int(result.code), application_of(connection) if known else "")
        if began_s is not None and results and results[0].code == Code.OK and len(set(topics)) == 1:
            figures.answered(topics[0], time.monotonic() - began_s)

    def _encoded(
        self, connection: Any, call: SendCall, results: list[SendResult], began_s: float | None = None
    ) -> bytes:
        for message, result in zip(call.messages, results, strict=False):
            if result.code > Code.DUPLICATE:
                self.codes[result.code] = self.codes.get(result.code, 0) + 1
            if not message.fault:
                self.outcomes.count(message.topic, result.code)
        if self.figures is not None:
            self._note(self.figures, connection, call, results, began_s)
        return contract.encode_reply("send", call.seqid, SendResponse(results=results))

    def _results(self, connection: Any, call: SendCall) -> list[SendResult]:
        if self.closing:
            return [refusal(Code.SHUTTING_DOWN) for _ in call.messages]
        try:
            principal = self._principals.find(call.credential, connection)
        except AuthenticationError as error:
            if error.code == Code.UNAUTHENTICATED:
                gevent.sleep(self.brake.failed(connection.peer))
            return [refusal(error.code, str(error)) for _ in call.messages]
        connection.context = principal.app  # for operators' lists of connections
        if call.fault:
            return [refusal(*CALL_FAULTS[CallFault(call.fault)]) for _ in call.messages]
        if call.reply_wait_ms > 0:
            return [self._ask(connection, call, principal)]
        return self._send(connection, call, principal)

    def _send(self, connection: Any, call: SendCall, principal: Principal) -> list[SendResult]:
        started, timeout_s = time.monotonic(), _timeout_s(call)
        pending = [PendingMessage(message) for message in call.messages]
        if call.trace is not None:
            call.trace.pending = pending
        self._pass_replies(call, principal, pending)
        for each in open_ones(pending):
            self._checks.check(each, principal, call.durability)
        self._limit(connection, principal, open_ones(pending), timeout_s)
        self._refuse_fenced(open_ones(pending))
        self._delays.answer(open_ones(pending), call.durability, timeout_s, principal.app)
        left = list(pending)
        if tried := self._diversion.tried(open_ones(pending)):
            for waiting in self._store(call, principal, tried, started, timeout_s):
                # These wait for longer. The others are saved now, while their time has room for it.
                self._diversion.save([each for each in left if each not in waiting], time.monotonic() - started)
                left = [each for each in left if each in waiting]
        self._diversion.save(left, time.monotonic() - started)
        return [each.answer() for each in pending]

    def _ask(self, connection: Any, call: SendCall, principal: Principal) -> SendResult:
        """Answer a request: store its message and wait for the reply."""
        pending = PendingMessage(call.messages[0])
        fault = None if pending.message.fault else fault_of(call)
        if fault:
            pending.refuse(Code.INVALID, fault)
        else:
            self._checks.check(pending, principal, call.durability, is_request=True)
        self._limit(connection, principal, open_ones([pending]), _timeout_s(call))
        self._refuse_fenced(open_ones([pending]))
        self._refuse_fenced(self._resolved(call, principal, open_ones([pending]), _timeout_s(call)))
        if pending.is_open:
            ((group, members),) = grouped([pending], call.durability).items()
            if admitted(group, members):
                self._ask_admitted(connection, principal.app, call, pending, group)
        return pending.answer()

    def _ask_admitted(
        self, connection: Any, application: str, call: SendCall, pending: PendingMessage, group: Group
    ) -> None:
        if pending.message.id is None:
            pending.assigned_id = self._ids.next()
        shown = pending.shown_id
        assert shown is not None
        not_stored = partial(refusal, sentence=None, shown_id=shown)
        pending.result = ask(self.requests, *group, connection, application, call, pending.slice, shown, not_stored)

    def _pass_replies(self, call: SendCall, principal: Principal, pending: Sequence[PendingMessage]) -> None:
        """Send replies to their askers' proxies, before any stage blocks."""
        timeout_ms = int(_timeout_s(call) * 1000)
        for each in pending:
            message = each.message
            if not message.fault and message.flags & HAS_REPLY_TO and not self._admission.feature_off(message):
                each.reply = PassedReply(self.requests, principal.app, message, timeout_ms)
        if any(each.reply is not None for each in pending):
            self._learn(call.credential, principal)

    def _limit(self, connection: Any, principal: Principal, wanted: Sequence[PendingMessage], timeout_s: float) -> None:
        """Refuse messages over the rate limits; blocks for the limits' hold."""
        limits = self._admission.rate_limits(principal.app, connection.retry_slot, timeout_s)
        broken = {}
        for each in wanted:
            definition = self._topics.definition(each.message.topic)
            meter = None if definition is None else self._admission.topic(definition)
            broken[each] = limits.admit(meter, each.message.size)
        connection.retry_slot = limits.next_slot()
        for each in wanted:
            if broken[each]:
                each.refuse(Code.RATE_LIMITED, None, limits.retry_after_ms(broken[each]))
        if limits.hold_s > 0:
            gevent.sleep(limits.hold_s)

    def _refuse_fenced(self, wanted: Sequence[PendingMessage]) -> None:
        """Refuse messages of topics whose home changes; those of buffered topics are then diverted."""
        for each in wanted:
            if self._topics.fences.of(each.message.topic) is not None:
                each.refuse(Code.FENCED, None, FENCED_RETRY_AFTER_MS)

    def _resolved(
        self, call: SendCall, principal: Principal, pending: Sequence[PendingMessage], timeout_s: float
    ) -> Sequence[PendingMessage]:
        """Set each message's route; blocks for unknown topics, up to `timeout_s`.

        Returns the messages with a route: all or none, unless the application may create no more topics.
        """
        if not pending:
            return []
        names = list(dict.fromkeys(each.message.topic for each in pending))
        try:
            routes = self._topics.find(names, Asker(principal.app, timeout_s))
        except ResolveError as error:
            if error.code == Code.QUOTA_EXCEEDED and len(names) > 1:
                apart = [[each for each in pending if each.message.topic == name] for name in names]
                return [each for one in apart for each in self._resolved(call, principal, one, timeout_s)]
            for each in pending:
                each.refuse(error.code, str(error))
            return []
        self._learn(call.credential, principal)
        for each in pending:
            each.route = routes[each.message.topic]
        return pending

    def _store(
        self, call: SendCall, principal: Principal, tried: Sequence[PendingMessage], started: float, timeout_s: float
    ) -> Iterator[set[PendingMessage]]:
        """Store messages. Those that wait for longer than others are yielded once the others have their results."""
        waits = by_wait(tried, lambda each: self._diversion.patience_s(each, timeout_s))
        deadline_s = started + waits[0][0]
        left_s = max(0.0, deadline_s - time.monotonic())
        resolved = self._returned.answer(self._resolved(call, principal, tried, left_s), deadline_s)
        if time.monotonic() >= deadline_s:  # its answer would be TIMEOUT, though nothing is sent yet
            for late in resolved:
                late.refuse(Code.OVERLOADED, "the engine did not tell the topic in time; nothing was stored")
            return
        self._refuse_fenced(resolved)  # nothing blocks between here and the submission
        resolved = open_ones(resolved)
        groups = {group: admitted(group, members) for group, members in grouped(resolved, call.durability).items()}
        submissions: list[tuple[float, list[PendingMessage], list[Submission]]] = [
            (started + wait_s, own, self._submitted(groups, own)) for wait_s, own in waits
        ]
        for number, (until_s, _, waiting) in enumerate(submissions):
            for each in waiting:
                each.collect(until_s)
            if number + 1 < len(submissions):
                yield {each for _, own, _ in submissions[number + 1 :] for each in own}

    def _submitted(
        self, groups: Mapping[Group, Sequence[PendingMessage]], own: Sequence[PendingMessage]
    ) -> list[Submission]:
        """Submit these of the groups' messages."""
        wanted = set(own)
        found = {group: [each for each in members if each in wanted] for group, members in groups.items()}
        return [Submission(group, members, self._ids.next) for group, members in found.items() if members]


def _timeout_s(call: SendCall) -> float:
    return min(call.timeout_ms or DEFAULT_TIMEOUT_MS, TIMEOUT_MS_MAX) / 1000
