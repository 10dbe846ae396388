"""Options of traces, for both proxies. The library is imported only where a collector is named."""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from common.ops.build_info import installed_version
from common.tracing.metrics import SpanMetrics
from common.tracing.records import SpanQueue


def options_of_traces(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--traces", type=collector_url, metavar="URL",
        help="Send spans to this OTLP collector over HTTP, such as http://127.0.0.1:4318/v1/traces, of messages with a "
        "sampled `traceparent`; needs penstock[otel] (default: no traces).")  # fmt: skip
    add("--traces-ratio", type=ratio, default=0.0, metavar="PART",
        help="Trace this part of the calls without a sampled `traceparent`, too, 0 to 1 (default 0).")  # fmt: skip


def collector_url(text: str) -> str:
    """A collector's address. Raises argparse's error with the rule."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL: use http://HOST:4318/v1/traces")
    return text if parts.path.strip("/") else text.rstrip("/") + "/v1/traces"


def ratio(text: str) -> float:
    """A part of 1. Raises argparse's error with the rule."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: use a number from 0 to 1, such as 0.001")
    return value


class NoTraces:
    """Of a process that does not trace."""

    def close(self) -> None:
        """Nothing is open."""


def traces_of(
    options: argparse.Namespace, process: str, registry: CollectorRegistry, trace: Callable[[SpanQueue], None]
) -> Any:
    """Trace as the options say: `trace` is called with the queue for spans, if at all. The result is closed at the end.

    Args:
        process: the name of its report: KIND@HOST:PORT/MACHINE.
    Raises:
        ValueError: the library is missing, or a ratio is given without a collector.
    """
    if not options.traces:
        if options.traces_ratio:
            raise ValueError("--traces-ratio: has no effect without --traces URL")
        return NoTraces()
    try:
        exporting = import_module("common.tracing.exporting")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ValueError("--traces: OpenTelemetry is not installed: pip install 'penstock[otel]'") from error
    service = f"penstock-{process.partition('@')[0].replace('_', '-')}"
    export = exporting.SpanExport(options.traces, options.traces_ratio, service, process, installed_version())
    registry.register(SpanMetrics(export.counts))
    trace(export.queue)
    return export
