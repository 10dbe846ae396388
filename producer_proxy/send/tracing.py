"""Spans of a send: per traced message one of the call, and one of the append to its target below it."""

import logging
import time
from collections.abc import Sequence

from common.contract import Code, SendResult
from common.limited_log import LimitedLog
from common.tracing.records import CLIENT, SERVER, SpanQueue, SpanRecord
from common.tracing.trace_context import SpanParent, parent_of
from common.wire.calls import HAS_PROPERTIES, Message, SendCall
from producer_proxy.send.pending import PendingMessage

limited = LimitedLog(logging.getLogger("penstock.traces"))

SPANS_PER_CALL_MAX = 100
"""Traced messages of a call; a batch may have a thousand."""


class SendTrace:
    """One traced call.

    Attributes:
        pending: its messages, once they have passed the first stage; times of their appends are in them.
    """

    def __init__(self, queue: SpanQueue, traced: dict[int, SpanParent | None]) -> None:
        self._queue, self._traced = queue, traced
        self._begin_ns = time.time_ns()
        self.pending: Sequence[PendingMessage] = ()

    def end(self, call: SendCall, results: Sequence[SendResult], application: str) -> None:
        """Put the spans. Never raises."""
        try:
            self._put(call, results, application)
        except Exception:
            limited.exception("the trace of a send was left out")

    def _put(self, call: SendCall, results: Sequence[SendResult], application: str) -> None:
        """The call's before the append's, which is below it."""
        end_ns = time.time_ns()
        for index, parent in self._traced.items():
            result, message = results[index], call.messages[index]
            topic = message.topic or ""
            attributes = {
                "messaging.system": "penstock", "messaging.destination.name": topic,
                "messaging.message.id": result.id or "", "messaging.message.body.size": message.body_size,
                "messaging.batch.message_count": len(call.messages), "messaging.operation.type": "send",
                "messaging.client.id": application, "penstock.code": name_of(result.code),
            }  # fmt: skip
            fault = "" if result.code < Code.INVALID else result.error or name_of(result.code)
            sent = SpanRecord(f"send {topic}", SERVER, parent, self._begin_ns, end_ns, attributes, fault)
            self._queue.put(sent)
            if index < len(self.pending):
                self._put_append(sent, topic, self.pending[index], result)

    def _put_append(self, sent: SpanRecord, topic: str, pending: PendingMessage, result: SendResult) -> None:
        begin_ns, end_ns, code = pending.appended
        if not begin_ns:
            return
        attributes = {
            "messaging.system": "penstock", "messaging.destination.name": topic, "penstock.code": name_of(code),
            "messaging.destination.partition.id": str(result.queue if result.queue is not None else ""),
            "penstock.offset": result.offset if result.offset is not None else -1,
        }  # fmt: skip
        fault = "" if code < Code.INVALID else name_of(code)
        self._queue.put(SpanRecord(f"append {topic}", CLIENT, sent, begin_ns, end_ns, attributes, fault))


def trace_of(queue: SpanQueue, call: SendCall, is_chosen: bool) -> SendTrace | None:
    """The trace of a call that has messages to trace. Never raises: no call fails for its trace.

    Args:
        is_chosen: trace it also without a sampled parent.
    """
    try:
        return _trace_of(queue, call, is_chosen)
    except Exception:
        limited.exception("a send cannot be traced")
        return None


def _trace_of(queue: SpanQueue, call: SendCall, is_chosen: bool) -> SendTrace | None:
    traced: dict[int, SpanParent | None] = {}
    for index, message in enumerate(call.messages):
        parent = _parent(message)
        if (parent or is_chosen) and not message.fault:
            traced[index] = parent
            if len(traced) == SPANS_PER_CALL_MAX:
                break
    return SendTrace(queue, traced) if traced else None


def _parent(message: Message) -> SpanParent | None:
    return parent_of(message.encoded) if message.flags & HAS_PROPERTIES and not message.fault else None


def name_of(code: int) -> str:
    """The name of a result code; its number where it has none."""
    return str(Code._VALUES_TO_NAMES.get(code, code))
