"""A pull from its frame to its reply, in loop callbacks: no greenlet a call, nothing that blocks.

    on_call ─ read_call ─ bounds ─ admission ─→ source.pull ─→ _pulled ─ build_reply ─→ reply
                                        └ positions ─→ [acks first] ─→ source.read ─→ _was_read ─┘

Whatever happens, a call that parses gets exactly one response; see docs/design/0006-consumer-proxy.md for what each failure means.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from common.auth_throttle import AuthThrottle
from common.clock import Clock
from common.contract import Code, decode_call
from common.wire import WireError
from consumer_proxy.admission.admission import Admission
from consumer_proxy.admission.group_rate import Held, Most, Short, within
from consumer_proxy.errors import Refused
from consumer_proxy.pull.bounds import check_bounds
from consumer_proxy.pull.deadlines import Deadlines
from consumer_proxy.pull.layout import REPLY_BYTES_MAX, DeliverError
from consumer_proxy.pull.link_bytes import NO_ACKS, NO_TOPICS, encode_acks, encode_pull, give_back
from consumer_proxy.pull.native import build_reply, read_call
from consumer_proxy.pull.pending import Pending
from consumer_proxy.pull.positions import Reading
from consumer_proxy.pull.replies import not_a_call, position_reports, refusal, tail
from consumer_proxy.settings import Settings
from consumer_proxy.sources.base import Answer, Source, SourceDown
from consumer_proxy.stats import Stats

log = logging.getLogger("penstock.consumer")

_STOPPING = "this proxy is shutting down: ask another one"
_OUR_FAULT = "the proxy failed to answer; the acknowledgements may have been taken, sending them again is harmless"


class Pulls:
    """All pulls of the process. `on_call` is what `common.net.serve` calls.

    Args:
        later: called as (seconds, function, *arguments) to have the function called after that time.
    """

    def __init__(
        self, admission: Admission, source: Source, settings: Settings, clock: Clock, stats: Stats, later: Callable[..., Any]
    ):  # fmt: skip
        self._admission, self._source, self._settings, self._later = admission, source, settings, later
        self._clock, self.stats = clock, stats
        self.deadlines = Deadlines()
        self._waiting: set[Pending] = set()
        self._brake = AuthThrottle()
        self._stopping = False

    @property
    def waiting(self) -> int:
        """Requests whose answer the source still owes, also those that nobody waits for any more."""
        return len(self._waiting)

    def on_call(self, connection: Any, frame: bytes) -> None:
        """Answer now or later. Never raises: what does would leave the connection without an answer for good."""
        try:
            call = read_call(frame)
        except WireError as error:
            self.stats.not_calls += 1
            connection.reply(not_a_call(frame, error))
            return
        if call.wait_ms > self._settings.wait_ms_max:
            call = call._replace(wait_ms=self._settings.wait_ms_max)  # no error, says the contract
        self.stats.pulls += 1
        self.stats.acks += call.acks
        now_s = self._clock.monotonic_s()
        pending = Pending(connection, call, now_s, now_s + (call.wait_ms + self._settings.answer_grace_ms) / 1000)
        self._watch(connection, pending)
        self._start(pending, frame)

    def _start(self, pending: Pending, frame: bytes) -> None:
        try:
            self._begin(pending, frame)
        except Refused as refused:
            pause_s = self._brake.failed(pending.connection.peer) if refused.code == Code.UNAUTHENTICATED else 0.0
            answer = pending, refused.code, refused.sentence, refused.retry_after_ms
            if pause_s:
                self._later(pause_s, self._refuse, *answer)
            else:
                self._refuse(*answer)
        except SourceDown as down:
            self._refuse(pending, Code.UNAVAILABLE, str(down), self._settings.retry_after_ms)
        except Exception:
            log.exception("connection=%s: a pull failed", pending.connection.peer)
            self._refuse(pending, Code.UNAVAILABLE, _OUR_FAULT, self._settings.retry_after_ms)

    def sweep(self) -> None:
        """Give up on answers that are overdue; to be called every `deadlines.step_s`."""
        for pending in self.deadlines.pop_due(self._clock.monotonic_s()):
            self._waiting.discard(pending)
            if pending.connection is None:
                continue
            self.stats.timeouts += 1
            self._source.cancel(pending.handle)
            self._refuse(pending, Code.TIMEOUT, "the engine did not answer in time; leases come back by themselves")

    def stop(self) -> None:
        """Refuse what comes from now on; what waits is called back, so that its acknowledgements still get their codes."""
        self._stopping = True
        for pending in self._waiting:
            self._source.cancel(pending.handle)

    def abandon(self) -> None:
        """Answer SHUTTING_DOWN to what still waits. Its acknowledgements may have been taken; twice is harmless."""
        for pending in list(self._waiting):
            self._refuse(pending, Code.SHUTTING_DOWN, _STOPPING)

    def _begin(self, pending: Pending, frame: bytes) -> None:
        call, settings = pending.call, self._settings
        if self._stopping:
            raise Refused(Code.SHUTTING_DOWN, _STOPPING)
        check_bounds(call, settings)
        if call.positions:
            self._begin_read(pending, frame)
            return
        admitted = self._admission.admit(call, pending.connection)
        pending.connection.trust()
        pending.topics = admitted.topics
        most = Most(call.max_messages, call.max_bytes)
        if admitted.meter is not None and call.max_messages:
            verdict = within(admitted.meter, most, self._clock.monotonic_s(), may_hold=not pending.was_held)
            if isinstance(verdict, Held):
                pending.was_held = True
                self._later(verdict.seconds, self._go_on, pending, frame)
                return
            if isinstance(verdict, Short):
                self._acknowledge_only(pending, verdict)
                return
            pending.meter, most = admitted.meter, verdict
        request = encode_pull(
            call.group,
            admitted.topics,
            max_messages=most.messages,
            max_bytes=most.bytes,
            wait_ms=call.wait_ms,
            invisible_ms=admitted.invisible_ms if call.invisible_ms < 0 else call.invisible_ms,
            start=admitted.start,
            ranges=call.ranges,
        )
        self._ask(pending, self._source.pull, request, self._pulled)

    def _go_on(self, pending: Pending, frame: bytes) -> None:
        """A pull was held for a moment; its client may have left meanwhile."""
        if pending.connection is not None:
            self._start(pending, frame)

    def _acknowledge_only(self, pending: Pending, short: Short) -> None:
        """The group's rate limit is reached: no deliveries, but its acknowledgements are taken."""
        call = pending.call
        if call.ranges == NO_ACKS:
            raise Refused(Code.RATE_LIMITED, short.sentence, short.retry_after_ms)
        end = tail(sentence=short.sentence, retry_after_ms=short.retry_after_ms)

        def acked(pending: Pending, payload: bytes) -> None:
            reply, _, _ = build_reply(call.seqid, Code.RATE_LIMITED, payload, -1, 4, call.runs, end, REPLY_BYTES_MAX)
            self._reply(pending, Code.RATE_LIMITED, reply)

        self._ask(pending, self._source.pull, encode_acks(call.group, pending.topics, call.ranges), acked)

    def _begin_read(self, pending: Pending, frame: bytes) -> None:
        call, admission = pending.call, self._admission
        principal = admission.principal(call.credential, pending.connection)
        pending.connection.trust()
        admission.check_group(principal, call.group.decode())
        arguments: Any = decode_call(frame)[2]
        pending.reading = Reading(arguments.request.positions, partial(admission.queues_of, principal))
        if call.ranges == NO_ACKS:
            self._read(pending, call.ranges)
            return
        # Acknowledgements go first, by a PULL of their own; the read then carries their answers along.
        request = encode_acks(call.group, NO_TOPICS, call.ranges)
        self._ask(pending, self._source.pull, request, self._acked)

    def _acked(self, pending: Pending, payload: bytes) -> None:
        self._read(pending, payload[:-4])  # its piece count, which is 0

    def _read(self, pending: Pending, codes: bytes) -> None:
        pending.codes = codes
        if pending.reading.asks:
            self._ask(pending, self._source.read, pending.reading.request(pending.call), self._was_read)
        else:
            self._answer(pending, codes, -1)

    def _was_read(self, pending: Pending, payload: bytes) -> None:
        pieces_at = pending.reading.take(payload)
        self._answer(pending, pending.codes + payload[pieces_at:], len(pending.codes))

    def _pulled(self, pending: Pending, payload: bytes) -> None:
        self._answer(pending, payload, 4 + 2 * int.from_bytes(payload[:4], "little"))

    def _answer(self, pending: Pending, payload: bytes, pieces_at: int) -> None:
        """Reply with what the payload holds: u32 count and ack codes, then the pieces."""
        call, reading = pending.call, pending.reading
        end = b"" if reading is None else tail(positions=position_reports(reading.reports))
        reply, given, held = build_reply(call.seqid, 0, payload, pieces_at, 4, call.runs, end, REPLY_BYTES_MAX)
        if given < held and reading is not None and reading.ask_for_less():
            self._read(pending, pending.codes)  # its reports count what does not fit, so they would be wrong
            return
        if given < held and reading is None:
            self._give_back(pending, payload, pieces_at, given)
        if given < held and not (given and reading is None):
            self._refuse(pending, Code.TOO_LARGE, "the next message is larger than a reply can be")
            return
        self.stats.deliveries += given
        if pending.meter is not None:
            pending.meter.take(given, len(reply))
        self._reply(pending, Code.OK, reply)

    def _ask(self, pending: Pending, ask: Any, request: bytes, then: Any) -> None:
        answer: Answer = partial(self._answered, pending, then)
        pending.handle = ask(request, answer)
        pending.bucket = self.deadlines.add(pending.deadline_s, pending)
        self._waiting.add(pending)

    def _answered(self, pending: Pending, then: Any, code: int, payload: bytes) -> None:
        self.deadlines.discard(pending.bucket, pending)
        self._waiting.discard(pending)
        try:
            if pending.connection is None:
                self._too_late(pending, code, payload)
            elif code == Code.OK:
                then(pending, payload)
            else:
                self._failed(pending, code, payload)
        except SourceDown as down:
            self._refuse(pending, Code.UNAVAILABLE, str(down), self._settings.retry_after_ms)
        except DeliverError as error:
            log.error("group=%s: the engine's answer is damaged: %s", pending.call.group.decode(), error)
            self._refuse(pending, Code.UNAVAILABLE, _OUR_FAULT, self._settings.retry_after_ms)
        except Exception:
            log.exception("group=%s: an answer could not be passed on", pending.call.group.decode())
            self._refuse(pending, Code.UNAVAILABLE, _OUR_FAULT, self._settings.retry_after_ms)

    def _failed(self, pending: Pending, code: int, sentence: bytes) -> None:
        text = sentence.decode("utf-8", "replace")
        if code == Code.SHUTTING_DOWN:
            code = Code.UNAVAILABLE  # of the engine: another proxy would have no better luck
        retry_after_ms = self._settings.retry_after_ms if code // 100 == 2 else None
        self._refuse(pending, code, text, retry_after_ms)

    def _too_late(self, pending: Pending, code: int, payload: bytes) -> None:
        if code == Code.OK and pending.reading is None:
            self._give_back(pending, payload, 4 + 2 * int.from_bytes(payload[:4], "little"), 0)

    def _give_back(self, pending: Pending, payload: bytes, pieces_at: int, skip: int) -> None:
        """Let the engine hand out again, at once, what this reply does not carry."""
        ranges, count = give_back(payload, pieces_at, skip)
        if count:
            self.stats.given_back += count
            self._source.tell(encode_acks(pending.call.group, pending.topics, ranges))

    def _refuse(self, pending: Pending, code: int, sentence: str, retry_after_ms: int | None = None) -> None:
        if pending.connection is not None:
            call = pending.call
            self._reply(pending, code, refusal(call.seqid, code, sentence, retry_after_ms, call.acks))

    def _reply(self, pending: Pending, code: int, reply: bytes) -> None:
        connection, pending.connection = pending.connection, None
        self.stats.answered(code, self._clock.monotonic_s() - pending.started_s, len(reply))
        connection.reply(reply)

    def _watch(self, connection: Any, pending: Pending) -> None:
        """Hear of the connection's end; once a connection, for its context is ours from its first call on."""
        if connection.context is None:
            connection.on_close = partial(self._closed, connection.on_close)
        connection.context = pending

    def _closed(self, before: Any, connection: Any) -> None:
        pending = connection.context
        if pending.connection is not None:
            pending.connection = None
            self.stats.abandoned += 1
            if pending.handle is not None:
                self._source.cancel(pending.handle)
        if before is not None:
            before(connection)
