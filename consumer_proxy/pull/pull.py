"""A pull from its frame to its reply, in loop callbacks: no greenlet per call, nothing that blocks.

    on_call ─ read_call ─ check_request ─ admission ─→ source.pull ─────────────→ _answer ─ build_reply ─→ reply
                                              └ positions ─→ [acks first] ─→ source.read ─→ _was_read ─┘

Every call that parses gets exactly one response. docs/design/0006-consumer-proxy.md describes each failure.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from common.auth_throttle import AuthThrottle
from common.clock import Clock
from common.contract import Code, decode_call
from common.limited_log import LimitedLog
from common.timer_heap import TimerHeap
from common.wire import WireError
from common.wire.faults import CALL_FAULTS, CallFault
from consumer_proxy.admission.admission import PullAdmission
from consumer_proxy.admission.rate_limit import HoldFor, PullBudget, RatedPulls, RateLimited, check_rate
from consumer_proxy.call import NO_RANGES, Call
from consumer_proxy.errors import Refused
from consumer_proxy.pull.changes import PermissionChanges
from consumer_proxy.pull.leaving import LeavingClients
from consumer_proxy.pull.native import build_reply, read_call
from consumer_proxy.pull.open_pull import OpenPull
from consumer_proxy.pull.positions import PositionPull
from consumer_proxy.pull.recent_deliveries import REPLIES_KEPT, RecentDeliveries, SentReply
from consumer_proxy.pull.replies import not_a_call, position_reports, refusal, tail
from consumer_proxy.pull.reply_format import REPLY_BYTES_MAX
from consumer_proxy.pull.request_rules import check_request
from consumer_proxy.pull.tracing import PullTracing
from consumer_proxy.response_fields import topic_list
from consumer_proxy.settings import Settings
from consumer_proxy.sources.base import Failure, Source, SourceDown
from consumer_proxy.stats import Stats
from engine.link.acknowledgement import NO_ACKS, RELEASE, AckRanges
from engine.link.codes import AT_BOUND, NO_ROOM, OK
from engine.link.errors import PayloadError
from engine.link.native import leases_of
from engine.link.pull import PullAnswer, PullQuestion, PullScope, acknowledging, rejections
from engine.link.read import ReadAnswer

limited = LimitedLog(logging.getLogger("penstock.consumer"))

SWEEP_S = 0.25
"""Resolution of deadlines."""

_CODES_AT = PullAnswer.CODES_AT
_EMPTY = {
    AT_BOUND: "the group has as many open messages of a queue as it may, leased, withheld by RETRY or waiting for their key: "
    "acknowledge leased ones, or wait until leases and delays end",
    NO_ROOM: "answers to slow readers take all room of this proxy: there may be messages, pull again later",
}
_STOPPING = "this proxy is shutting down: ask another one"
_FAILED = "internal error of the proxy: the acknowledgements may have been accepted, repeating them is harmless"


class Pulls:
    """All pulls of the process. `on_call` is the callback of `common.net.serve`.

    Args:
        later: called as (seconds, function, *arguments) to have the function called after that time.
    Attributes:
        tracing: gets each pull and its reply; None: nothing is traced.
        deliveries: the last replies of connections, for operators.
    """

    def __init__(
        self, admission: PullAdmission, source: Source, settings: Settings, clock: Clock, stats: Stats,
        later: Callable[..., Any],
    ) -> None:  # fmt: skip
        self._admission, self._source, self._settings, self._later = admission, source, settings, later
        self._clock, self.stats = clock, stats
        self._deadlines = TimerHeap(int(SWEEP_S * 1000))
        self._waiting: set[OpenPull] = set()
        self.brake = AuthThrottle()
        self._stopping = False
        self.tracing: PullTracing | None = None
        self.deliveries = RecentDeliveries()
        self._leaving = LeavingClients(source, stats, self.deliveries)
        self._rates = RatedPulls()
        self.changes = PermissionChanges(admission, source, clock, later, self._waiting)

    @property
    def waiting(self) -> int:
        """Questions that the source has not answered yet, including those whose client has left."""
        return len(self._waiting)

    def on_call(self, connection: Any, frame: bytes) -> None:
        """Answer now or later. Never raises: after an exception the connection would get no answer."""
        try:
            call = read_call(frame)
        except WireError as error:
            self.stats.not_calls += 1
            connection.reply(not_a_call(frame, error))
            return
        if call.wait_ms > self._settings.wait_ms_max:
            call = call._replace(wait_ms=self._settings.wait_ms_max)  # not an error, by the contract
        self.stats.pulls += 1
        self.stats.acks += call.acks
        now_s = self._clock.monotonic_s()
        pull = OpenPull(connection, call, now_s, now_s + (call.wait_ms + self._settings.answer_grace_ms) / 1000)
        if self.tracing is not None:
            pull.trace = self.tracing.began(call, frame)
        self._leaving.watch(connection, pull)
        self._start(pull, frame)

    def _start(self, pull: OpenPull, frame: bytes) -> None:
        try:
            try:
                self._begin(pull, frame)
            except Refused as refused:
                self._refused(pull, refused)
        except SourceDown as down:
            self._refuse(pull, Code.UNAVAILABLE, str(down), self._settings.retry_after_ms)
        except Exception:
            limited.exception("connection=%s: a pull failed", pull.connection.peer)
            self._refuse(pull, Code.UNAVAILABLE, _FAILED, self._settings.retry_after_ms)

    def _refused(self, pull: OpenPull, refused: Refused) -> None:
        """Refuse a pull. Its acknowledgements count all the same, unless the application may not give them."""
        call = pull.call
        pause_s = self.brake.failed(pull.connection.peer) if refused.code == Code.UNAUTHENTICATED else 0.0
        is_known = refused.code != Code.UNAUTHENTICATED and not call.fault and not self._stopping
        if pause_s:
            self._later(pause_s, self._refuse, pull, refused.code, refused.sentence, refused.retry_after_ms)
        elif is_known and call.ranges != NO_RANGES and self._admission.may_acknowledge(call, pull.connection):
            self._acknowledge_only(pull, refused)
        else:
            self._refuse(pull, refused.code, refused.sentence, refused.retry_after_ms)

    def sweep(self) -> None:
        """Answer TIMEOUT to pulls for which the source is late; called at least every SWEEP_S."""
        for pull in self._deadlines.pop_due(int(self._clock.monotonic_s() * 1000)):
            self._waiting.discard(pull)
            if pull.connection is None:
                continue
            self.stats.timeouts += 1
            self._source.cancel(pull.handle)
            self._refuse(pull, Code.TIMEOUT, "the engine did not answer in time; leases expire by themselves")

    def stop(self) -> None:
        """Refuse new calls and cancel waiting pulls, which answers them with the codes of their acknowledgements."""
        self._stopping = True
        for pull in list(self._waiting):
            self._source.cancel(pull.handle)

    def resume(self) -> None:
        """Take calls again after stop()."""
        self._stopping = False

    def abandon(self) -> None:
        """Answer SHUTTING_DOWN to pulls that still wait. Repeating their acknowledgements is harmless."""
        for pull in list(self._waiting):
            self._refuse(pull, Code.SHUTTING_DOWN, _STOPPING)

    def _begin(self, pull: OpenPull, frame: bytes) -> None:
        call, settings = pull.call, self._settings
        if self._stopping:
            raise Refused(Code.SHUTTING_DOWN, _STOPPING)
        if call.fault:
            raise Refused(*CALL_FAULTS[CallFault(call.fault)])
        check_request(call, settings)
        if call.lists_topics:
            self._list_topics(pull, frame)
            return
        if call.positions:
            self._begin_read(pull, frame)
            return
        admitted = self._admission.admit(call, pull.connection)
        pull.connection.trust()
        pull.scope, pull.reply_key, pull.sources = admitted.scope, admitted.reply_key, admitted.sources
        pull.admitted, pull.generation, pull.expires_at_ms = (
            admitted,
            self._admission.generation,
            admitted.expires_at_ms,
        )
        max_messages, max_bytes = call.max_messages, call.max_bytes
        if admitted.meter is not None and max_messages:
            budget = PullBudget(max_messages, max_bytes)
            now_s, connection = self._clock.monotonic_s(), pull.connection
            verdict = check_rate(admitted.meter, budget, now_s, connection.retry_slot, may_hold=not pull.was_held)
            if isinstance(verdict, HoldFor):
                pull.was_held = True
                self._later(verdict.seconds, self._go_on, pull, frame)
                return
            connection.retry_slot = verdict.slot if isinstance(verdict, RateLimited) else None
            if isinstance(verdict, RateLimited):
                raise Refused(Code.RATE_LIMITED, verdict.sentence, verdict.retry_after_ms)
            max_messages, max_bytes = self._rates.share(admitted.meter, verdict)
        invisible_ms, pull.told = call.invisible_ms, admitted.told
        if invisible_ms < 0:
            invisible_ms, pull.told = admitted.invisible_ms, admitted.told_with_lease
        question = PullQuestion(
            admitted.scope, max_messages, max_bytes, call.wait_ms, invisible_ms, admitted.start, acks_of(call)
        )
        self._ask(pull, self._source.pull, question, self._answer)
        if admitted.meter is not None and max_messages:
            self._rates.began(pull, admitted.meter)

    def _go_on(self, pull: OpenPull, frame: bytes) -> None:
        """Continue a pull that was held, unless its client has left."""
        if pull.connection is not None:
            self._start(pull, frame)

    def _acknowledge_only(self, pull: OpenPull, refused: Refused) -> None:
        """Accept the acknowledgements of a refused pull; deliver nothing."""
        call = pull.call
        self._ask(
            pull, self._source.pull, acknowledging(PullScope(call.group, {}), acks_of(call)),
            partial(self._refuse_answered, refused),
        )  # fmt: skip

    def _refuse_answered(self, refused: Refused, pull: OpenPull, answer: PullAnswer) -> None:
        """Refuse a pull whose acknowledgements were accepted. What was leased for it is given back."""
        call = pull.call
        end = tail(sentence=refused.sentence, retry_after_ms=refused.retry_after_ms)
        self._give_back(pull, answer, 0)
        reply, *_ = build_reply(
            call.seqid, refused.code, answer.payload, -1, _CODES_AT, call.runs, end, REPLY_BYTES_MAX
        )
        self._reply(pull, refused.code, reply)

    def _list_topics(self, pull: OpenPull, frame: bytes) -> None:
        call, admission = pull.call, self._admission
        principal = admission.principal(call.credential, pull.connection)
        admission.check_group(principal, call.group.decode())
        if call.positions or call.acks:
            raise Refused(Code.INVALID, "PullRequest.topics_after: set it without positions and acks")
        arguments: Any = decode_call(frame)[2]
        after = arguments.request.topics_after
        if not isinstance(after, str):
            raise Refused(Code.INVALID, "PullRequest.topics_after: UTF-8")
        end = topic_list(admission.topic_names.page(principal, after))
        self._reply(pull, OK, build_reply(call.seqid, OK, b"", -1, 0, b"", end, REPLY_BYTES_MAX)[0])

    def _begin_read(self, pull: OpenPull, frame: bytes) -> None:
        call, admission = pull.call, self._admission
        principal = admission.principal(call.credential, pull.connection)
        admission.check_group(principal, call.group.decode())
        arguments: Any = decode_call(frame)[2]
        read = pull.position_read = PositionPull(arguments.request.positions, partial(admission.find_topic, principal))
        read.application = principal.app
        pull.generation, pull.expires_at_ms = admission.generation, principal.expires_at_ms
        if call.ranges == NO_RANGES:
            self._read(pull, read)
            return
        # Acknowledgements go first, in a separate PULL; the read's reply carries their codes.
        question = acknowledging(PullScope(call.group, {}), acks_of(call))

        def acknowledged(pull: OpenPull, answer: PullAnswer) -> None:
            pull.acked = answer
            self._read(pull, read)

        self._ask(pull, self._source.pull, question, acknowledged)

    def _read(self, pull: OpenPull, read: PositionPull) -> None:
        if read.asks:
            self._ask(pull, self._source.read, read.question(pull.call), self._was_read)
        else:
            self._answer(pull, pull.acked)

    def _was_read(self, pull: OpenPull, answer: ReadAnswer) -> None:
        assert pull.position_read is not None
        pull.position_read.take(answer)
        self._answer(pull, pull.acked.with_pieces(answer.payload, answer.pieces_at))

    def _answer(self, pull: OpenPull, answer: PullAnswer) -> None:
        """Reply with codes and deliveries."""
        call, read = pull.call, pull.position_read
        end = pull.told if read is None else tail(positions=position_reports(read.reports))
        code = OK
        if answer.code != OK:
            code = Code.OVERLOADED
            end = tail(sentence=_EMPTY[answer.code], retry_after_ms=self._settings.retry_after_ms) + end
        reply, given, held, malformed = build_reply(
            call.seqid, code, answer.payload, answer.pieces_at, _CODES_AT, call.runs, end, REPLY_BYTES_MAX,
            pull.reply_key, pull.sources,
        )  # fmt: skip
        if given < held:
            if read is not None and read.ask_for_less():
                self._read(pull, read)  # its reports count messages that do not fit, so they would be wrong
                return
            if read is None:
                self._give_back(pull, answer, given)
            if not given or read is not None:
                self._refuse(pull, Code.TOO_LARGE, "the next message is larger than a reply can be")
                return
        if malformed:
            self._drop(pull, answer, malformed)
        deliver = partial(
            self._deliver, pull, answer, reply, code, given - len(malformed), given == held and read is None
        )
        verdict: float | RateLimited = 0.0
        if pull.meter is not None and given:
            verdict = self._rates.charge(pull.meter, given, len(reply), self._clock.monotonic_s())
        if isinstance(verdict, RateLimited):
            pull.connection.retry_slot = verdict.slot
            self._refuse_answered(Refused(Code.RATE_LIMITED, verdict.sentence, verdict.retry_after_ms), pull, answer)
        elif verdict:
            self._waiting.add(pull)
            self._later(verdict, deliver)
        else:
            deliver()

    def _deliver(self, pull: OpenPull, answer: PullAnswer, reply: bytes, code: int, count: int, is_whole: bool) -> None:
        """Send a reply with this many messages. `is_whole`: it has all that was leased for it."""
        self._waiting.discard(pull)
        if pull.connection is None:  # its client has left while the rate limit held the reply
            self._give_back(pull, answer, 0)
            return
        self.stats.deliveries += count
        if count and is_whole:
            pull.held = leases_of(answer.payload, answer.pieces_at, 0, RELEASE)[0]
            if pull.scope is not None:
                reply_sent = SentReply(self._clock.now_ms(), pull.scope, pull.held)
                pull.replies = (reply_sent, *pull.replies[: REPLIES_KEPT - 1])
        self._reply(pull, code, reply)

    def _ask(self, pull: OpenPull, ask: Callable[..., Any], question: Any, then: Callable[..., None]) -> None:
        pull.handle = ask(question, partial(self._answered, pull, then))
        pull.tick = self._deadlines.schedule(int(pull.deadline_s * 1000), pull)
        self._waiting.add(pull)

    def _answered(
        self, pull: OpenPull, then: Callable[..., None], answer: PullAnswer | ReadAnswer | Failure
    ) -> None:  # fmt: skip
        self._deadlines.cancel(pull.tick, pull)
        self._waiting.discard(pull)
        self._rates.ended(pull)
        try:
            if pull.connection is None:
                self._too_late(pull, answer)
            elif isinstance(answer, Failure):
                self._failed(pull, answer)
            elif (refused := self.changes.refusal(pull)) is not None:
                self._refuse_answered(refused, pull, answer if isinstance(answer, PullAnswer) else pull.acked)
            else:
                then(pull, answer)
        except SourceDown as down:
            self._refuse(pull, Code.UNAVAILABLE, str(down), self._settings.retry_after_ms)
        except PayloadError as error:
            limited.error("group=%s: damaged answer: %s", pull.call.group.decode(), error)
            self._refuse(pull, Code.UNAVAILABLE, _FAILED, self._settings.retry_after_ms)
        except Exception:
            limited.exception("group=%s: an answer could not be passed on", pull.call.group.decode())
            self._refuse(pull, Code.UNAVAILABLE, _FAILED, self._settings.retry_after_ms)

    def _failed(self, pull: OpenPull, failure: Failure) -> None:
        code = failure.code
        if code == Code.SHUTTING_DOWN:
            code = Code.UNAVAILABLE  # the engine shuts down: another proxy would not help
        retry_after_ms = self._settings.retry_after_ms if code // 100 == 2 else None
        self._refuse(pull, code, failure.sentence, retry_after_ms)

    def _too_late(self, pull: OpenPull, answer: PullAnswer | ReadAnswer | Failure) -> None:
        if isinstance(answer, PullAnswer) and pull.position_read is None:
            self._give_back(pull, answer, 0)

    def _give_back(self, pull: OpenPull, answer: PullAnswer, skip: int) -> None:
        """Release the messages that this reply does not carry: they are redelivered at once, and this was no attempt."""
        acks, count = answer.give_back(skip)
        if count and pull.scope is not None:
            self.stats.given_back += count
            self._source.acknowledge(pull.scope, acks)

    def _drop(self, pull: OpenPull, answer: PullAnswer, malformed: list[tuple[int, int]]) -> None:
        """Reject messages that the reply leaves out because no client could read them: each pull would meet them again."""
        self.stats.malformed += len(malformed)
        limited.error("group=%s: left out messages that are no whole Message", pull.call.group.decode())
        ranges = rejections(answer, malformed)
        if ranges and pull.scope is not None:
            self._source.acknowledge(pull.scope, AckRanges.of(ranges))

    def _refuse(self, pull: OpenPull, code: int, sentence: str, retry_after_ms: int | None = None) -> None:
        if pull.connection is not None:
            call = pull.call
            self._reply(pull, code, refusal(call.seqid, code, sentence, retry_after_ms, call.acks))

    def _reply(self, pull: OpenPull, code: int, reply: bytes) -> None:
        connection, pull.connection = pull.connection, None
        self.stats.answered(code, self._clock.monotonic_s() - pull.started_s, len(reply))
        if self.tracing is not None:
            self.tracing.answered(pull, reply)
        pull.reply_end = connection.queued + len(reply)  # set before: the next call may begin within reply()
        connection.reply(reply)


def acks_of(call: Call) -> AckRanges:
    """The acknowledgement ranges of a call, as they were merged."""
    return NO_ACKS if call.ranges == NO_RANGES else AckRanges(call.ranges)
