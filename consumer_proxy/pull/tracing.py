"""Spans of deliveries and of their acknowledgements.

A delivery's span belongs to the trace that its message's `traceparent` names. That of its acknowledgement is below it, if
the acknowledgement comes to the same process: its receipt is remembered, for as long as there is room.
"""

import logging
import time
from collections import OrderedDict
from typing import Any, NamedTuple

from common.contract import Code, Verdict, decode_call, decode_reply
from common.limited_log import LimitedLog
from common.tracing.records import CLIENT, PRODUCER, SpanQueue, SpanRecord
from common.tracing.trace_context import may_have_sampled, sampled_parent
from consumer_proxy.call import Call
from consumer_proxy.pull.open_pull import OpenPull

limited = LimitedLog(logging.getLogger("penstock.traces"))

RECEIPTS_MAX = 10_000
SPANS_PER_PULL_MAX = 100


class _TracedAck(NamedTuple):
    number: int
    verdict: int
    delivered: SpanRecord


class PullTrace:
    """A pull's begin, and its acknowledgements of traced deliveries."""

    __slots__ = ("acks", "begin_ns")

    def __init__(self, acks: list[_TracedAck]) -> None:
        self.acks, self.begin_ns = acks, time.time_ns()


class PullTracing:
    """
    Args:
        queue: gets the spans.
    """

    def __init__(self, queue: SpanQueue) -> None:
        self._queue = queue
        self._delivered: OrderedDict[bytes, SpanRecord] = OrderedDict()  # by receipt

    def began(self, call: Call, frame: bytes) -> PullTrace:
        """Begin a pull. A frame is decoded only while deliveries wait for their acknowledgements. Never raises."""
        try:
            return PullTrace(self._traced_acks(frame) if self._delivered and call.acks else [])
        except Exception:
            limited.exception("acknowledgements cannot be traced")
            return PullTrace([])

    def answered(self, pull: OpenPull, reply: bytes) -> None:
        """Put the spans of a pull whose reply is about to leave. Never raises: no pull fails for its trace."""
        try:
            self._answered(pull, pull.trace, reply)
        except Exception:
            limited.exception("the trace of a pull was left out")

    def _traced_acks(self, frame: bytes) -> list[_TracedAck]:
        acks = []
        arguments: Any = decode_call(frame)[2]
        for index, ack in enumerate(arguments.request.acks):
            delivered = self._delivered.get(ack.receipt)
            if delivered is not None:
                acks.append(_TracedAck(index, ack.verdict or 0, delivered))
                if ack.verdict != Verdict.EXTEND:
                    del self._delivered[ack.receipt]
        return acks

    def _answered(self, pull: OpenPull, trace: PullTrace, reply: bytes) -> None:
        is_chosen = self._queue.is_chosen()
        if not (trace.acks or is_chosen or may_have_sampled(reply)):
            return
        response: Any = decode_reply(reply, pull.call.seqid)
        end_ns, group = time.time_ns(), pull.call.group.decode(errors="replace")
        for ack in trace.acks:
            self._acknowledged(ack, response, trace.begin_ns, end_ns)
        count = 0
        for delivery in response.deliveries:
            parent = sampled_parent(delivery.message.properties)
            if (parent or is_chosen) and count < SPANS_PER_PULL_MAX:
                count += 1
                self._put_delivery(delivery, parent, group, trace.begin_ns, end_ns)

    def _put_delivery(self, delivery: Any, parent: Any, group: str, begin_ns: int, end_ns: int) -> None:
        """A long poll may have begun before the message was there: then the span begins when it was stored."""
        begin_ns = min(max(begin_ns, delivery.stored_at_ms * 1_000_000), end_ns)
        attributes = {
            "messaging.system": "penstock", "messaging.destination.name": delivery.message.topic,
            "messaging.message.id": delivery.id, "messaging.consumer.group.name": group,
            "messaging.destination.partition.id": str(delivery.queue), "messaging.operation.type": "receive",
            "penstock.offset": delivery.offset, "penstock.attempt": delivery.attempt,
        }  # fmt: skip
        record = SpanRecord(f"deliver {delivery.message.topic}", PRODUCER, parent, begin_ns, end_ns, attributes)
        self._queue.put(record)
        if delivery.receipt:
            self._delivered[delivery.receipt] = record
            if len(self._delivered) > RECEIPTS_MAX:
                self._delivered.popitem(last=False)

    def _acknowledged(self, ack: _TracedAck, response: Any, begin_ns: int, end_ns: int) -> None:
        results = response.ack_results or []
        code = results[ack.number].code if ack.number < len(results) else response.code
        topic = ack.delivered.attributes["messaging.destination.name"]
        attributes = {
            **ack.delivered.attributes, "messaging.operation.type": "settle",
            "penstock.verdict": str(Verdict._VALUES_TO_NAMES.get(ack.verdict, ack.verdict)),
            "penstock.code": str(Code._VALUES_TO_NAMES.get(code, code)),
        }  # fmt: skip
        fault = "" if code == Code.OK else attributes["penstock.code"]
        self._queue.put(SpanRecord(f"acknowledge {topic}", CLIENT, ack.delivered, begin_ns, end_ns, attributes, fault))
