"""Progress of the demo: a live table on a terminal, one line every few seconds elsewhere."""

import sys
import time
from typing import Any

from penstock.demo.pair import Pair

LINE_S = 2.0


class PlainView:
    """One line every LINE_S, for pipes and logs."""

    def __init__(self) -> None:
        self._shown_at = time.monotonic()

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(self, *fault: object) -> None:
        pass

    def show(self, pair: Pair) -> None:
        if time.monotonic() - self._shown_at < LINE_S:
            return
        self._shown_at = time.monotonic()
        print("demo: " + ", ".join(f"{name} {value}" for name, value in figures(pair)), flush=True)


class TableView:
    """A live table, for terminals."""

    def __init__(self) -> None:
        from rich.live import Live  # costs 30 ms and 5 MB, which a run without a terminal does not need

        self._live = Live(refresh_per_second=5, transient=True)

    def __enter__(self) -> "TableView":
        self._live.start()
        return self

    def __exit__(self, *fault: object) -> None:
        self._live.stop()

    def show(self, pair: Pair) -> None:
        from rich.table import Table

        # One figure per row: side by side they would be cut on a terminal of 80 columns.
        table = Table(
            "", f"{pair.producer.language} → Penstock → {pair.consumer.language}", title=pair.check.source.name
        )
        for name, value in figures(pair):
            table.add_row(name, value)
        self._live.update(table)


def figures(pair: Pair) -> list[tuple[str, str]]:
    """Names and values of the progress; rates are means since the start."""
    sent, arrived, count = int(pair.progress["sent"]), pair.check.arrived, pair.check.source.count
    seconds = max(pair.seconds, 0.001)
    return [
        ("sent", f"{max(sent, arrived):,}/{count:,}"),
        ("arrived", f"{arrived:,}"),
        ("lag", f"{max(0, sent - arrived):,}"),
        ("sent/s", f"{sent / seconds:,.0f}"),
        ("arrived/s", f"{arrived / seconds:,.0f}"),
        ("call p50 ms", f"{float(pair.progress['p50_ms']):.2f}"),
        ("call p99 ms", f"{float(pair.progress['p99_ms']):.2f}"),
        ("retried", f"{pair.progress['retried']}"),
    ]


def make_view(stream: Any = None) -> PlainView | TableView:
    return TableView() if (stream or sys.stdout).isatty() else PlainView()
