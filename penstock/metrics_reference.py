"""The reference page of all metrics: `python -m penstock.metrics_reference > docs/metrics.md`.

A module that makes metrics has a table of them in its docstring: name, unit, and what to do. The page is these tables.
"""

import sys
from importlib import import_module
from typing import NamedTuple

HEAD = """# Metrics

This page is generated from the tables beside the code (`python -m penstock.metrics_reference > docs/metrics.md`); a test
compares it with the pages of running processes.

Each process serves `/metrics` in Prometheus' text format on its operator's port (`--ops`), together with its memory, CPU
time and file descriptors as `process_*`. Rules for alerts: [packaging/prometheus](../packaging/prometheus/alerts.yml);
a dashboard for Grafana: [packaging/grafana](../packaging/grafana/penstock.json).
`/metrics?series=none` leaves out the series of groups and topics, which cost an engine most: some 4 µs per queue of a
group that is behind, else 1 µs.

Names are `penstock_PROCESS_WHAT_UNIT`, with a part such as `buffer` in place of the process where several processes have
it. Counters end in `_total`, times of day in `_timestamp_seconds`. Units are seconds and bytes; what else is counted is
said beside the name. Labels are in braces; `code` is the name of a [result code](glossary.md#result-code). Clients cannot
make the pages grow: `--metrics-groups` and `--metrics-topics` of the engine bound the series of groups and topics, and a
gauge counts those that are left out. Every other label names something that an operator has made.
"""
SECTIONS = {
    "Every process": ("common.ops.build_info", "common.config.health"),
    "Both proxies": (
        "common.breaker_metrics",
        "common.key_uses",
        "common.root_key_watch",
        "common.net.certificate",
    ),
    "Proxies and engines": ("common.net.places_metrics",),
    "Traces of both proxies": ("common.tracing.metrics",),
    "Producer proxy": ("producer_proxy.metrics",),
    "Fallback buffer of a producer proxy": ("producer_proxy.buffer.metrics",),
    "Dual writes of a producer proxy": ("producer_proxy.journal.metrics",),
    "Consumer proxy": ("consumer_proxy.stats",),
    "Engine": ("engine.server.metrics", "engine.server.series_metrics"),
    "Broker of a group with replicas": ("engine.broker.metrics",),
    "Controller": ("controller.metrics",),
    "Kafka bridge": (
        "kafka_bridge.metrics",
        "kafka_bridge.copy_in.metrics",
        "kafka_bridge.copy_out.metrics",
        "kafka_bridge.shared_read.metrics",
    ),
}


class MetricRow(NamedTuple):
    """One metric: its name as it is on the page, labels, unit, and what a value asks for."""

    name: str
    labels: str
    unit: str
    action: str


def rows_of(docstring: str) -> list[MetricRow]:
    """The table in a docstring."""
    rows = []
    for line in docstring.splitlines():
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split(" | ")]
        if len(cells) == 3 and cells[0].startswith("penstock_"):
            name, brace, labels = cells[0].partition("{")
            rows.append(MetricRow(name, brace + labels, cells[1], cells[2]))
    return rows


def sections() -> dict[str, list[MetricRow]]:
    """The metrics by section of the page."""
    return {
        title: [row for name in modules for row in rows_of(import_module(name).__doc__ or "")]
        for title, modules in SECTIONS.items()
    }


def page() -> str:
    """The page's text."""
    parts = [HEAD]
    for title, rows in sections().items():
        parts += [f"\n## {title}\n\n", "| metric | unit | what to do about it |\n|---|---|---|\n"]
        for row in rows:
            action = "" if row.action in ("-", "–") else row.action
            cells = (f"`{row.name}{row.labels}`", row.unit, action)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
