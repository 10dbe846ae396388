"""Export of spans by OpenTelemetry's SDK: OTLP over HTTP, in greenlets of its own. Only processes that trace import it.

One greenlet makes spans of the queue's records, a few at a time, and never more than the SDK's batch processor has room
for: so what is lost is lost in our queue, where it is counted. The SDK's thread is a greenlet, as the process is patched.
A collector that is away costs the spans and nothing else.
"""

import logging
import random
from collections.abc import Sequence
from itertools import count

import gevent
from gevent.event import Event
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from common.limited_log import LimitedLog
from common.net.turns import next_turn
from common.tracing.metrics import SpanCounts
from common.tracing.records import SpanQueue, SpanRecord
from common.tracing.trace_context import SpanParent

log = logging.getLogger("penstock.traces")
limited = LimitedLog(log)

BATCH_MAX = 32
"""Spans per request. More costs fewer requests, and stops the loop for longer while they are encoded: some 50 µs each."""
AT_ONCE = 8
"""Records that become spans before others may run: some 0.3 ms."""
SDK_QUEUE_MAX = 1_024
EVERY_MS = 1_000
EXPORT_S_MAX = 5.0
CLOSE_S_MAX = 2.0


class CountingExporter(SpanExporter):
    """Counts what its exporter has sent and what it has given up. `moved` is set after each batch."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.sent = self.failed = 0
        self.moved = Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
        else:
            self.failed += len(spans)
        self.moved.set()
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class SpanExport:
    """The queue of a process's spans, and its way to the collector.

    Args:
        url: of the collector, with its path: http://host:4318/v1/traces.
        service, instance: names of the process in its spans.
    """

    def __init__(self, url: str, ratio: float, service: str, instance: str, version: str) -> None:
        self._come = Event()
        self.queue = SpanQueue(ratio, random.random, self._come.set)
        self._exporter = CountingExporter(OTLPSpanExporter(endpoint=url, timeout=EXPORT_S_MAX))
        names = {"service.name": service, "service.instance.id": instance, "service.version": version}
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=Resource(names), shutdown_on_exit=False)
        batches = BatchSpanProcessor(
            self._exporter, max_queue_size=SDK_QUEUE_MAX, schedule_delay_millis=EVERY_MS,
            max_export_batch_size=BATCH_MAX, export_timeout_millis=EXPORT_S_MAX * 1000,
        )  # fmt: skip
        self._provider.add_span_processor(batches)
        self._tracer = self._provider.get_tracer("penstock", version)
        self._made = self._left_out = 0
        self._greenlet = gevent.spawn(self._run)
        log.info("traces=%s ratio=%g: sending spans", url, ratio)

    def _run(self) -> None:
        while True:
            self._come.wait()
            self._come.clear()
            self._make_all()

    @property
    def _with_sdk(self) -> int:
        """Spans that the SDK has neither sent nor given up."""
        return self._made - self._exporter.sent - self._exporter.failed

    def _make_all(self) -> None:
        for number in count(1):
            while self._with_sdk >= SDK_QUEUE_MAX:
                self._exporter.moved.clear()
                self._exporter.moved.wait()
            record = self.queue.take()
            if record is None:
                return
            try:
                self._make(record)
            except Exception:
                self._left_out += 1
                limited.exception("span=%s: left out", record.name)
            if number % AT_ONCE == 0:
                next_turn()

    def _make(self, record: SpanRecord) -> None:
        above = record.parent
        if isinstance(above, SpanRecord) and above.made is None:  # it was lost: this one would begin a trace of its own
            self._left_out += 1
            return
        parent = above.made if isinstance(above, SpanRecord) else remote(above)
        context = None if parent is None else set_span_in_context(NonRecordingSpan(parent))
        kind = SpanKind[record.kind]
        span = self._tracer.start_span(record.name, context, kind, record.attributes, start_time=record.begin_ns)
        if record.fault:
            span.set_status(Status(StatusCode.ERROR, record.fault))
        self._made += 1
        span.end(max(record.end_ns, record.begin_ns))
        record.made = span.get_span_context()

    def close(self) -> None:
        """Send what is there, for CLOSE_S_MAX at most."""
        self._greenlet.kill()
        with gevent.Timeout(CLOSE_S_MAX, False):
            self._make_all()
            self._provider.shutdown()

    def counts(self) -> SpanCounts:
        lost = self.queue.lost + self._left_out + self._exporter.failed
        return SpanCounts(self._exporter.sent, lost, self._with_sdk + len(self.queue))


def remote(parent: SpanParent | None) -> SpanContext | None:
    """A sampled span of another process."""
    if parent is None:
        return None
    return SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
