"""Printed figures: one line per run, and tables."""

import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.auto_creation import AutoCreation
from bench.outcome import Latency, Outcome


def line(outcome: Outcome) -> str:
    """Format the run as one line: commit, durability, throughput, percentiles, CPU."""
    settings = outcome.settings
    parts = [f"{outcome.name} commit={outcome.commit} durability={settings.durability}"]
    if settings.sends:
        loop = f"open:{settings.rate:g}/s" if settings.rate else "closed"
        parts.append(f"loop={loop} calls/s={outcome.calls_per_s:,.0f} messages/s={outcome.messages_per_s:,.0f}")
        parts.append(_latency(Latency.of(outcome.loaded.latency)))
    if settings.pulls:
        parts.append(f"deliveries/s={outcome.deliveries_per_s:,.0f}")
        if not settings.sends:
            parts.append(_latency(Latency.of(outcome.loaded.pull_latency)))
    if outcome.birth:
        grown = outcome.birth.engine_growth_bytes / 1e6
        parts.append(f"topics={outcome.birth.topics:,} born_in={outcome.birth.seconds:.1f}s engine_rss=+{grown:,.0f}MB")
    each = " ".join(f"{use.name}={outcome.cpu_us_per_message(use.name):.2f}" for use in outcome.servers)
    parts.append(f"cpu_s/M={outcome.cpu_us_per_message():.2f} ({each})")
    return " ".join(parts)


def table(outcome: Outcome) -> Table:
    """Make the table of one run."""
    made = Table(
        title=f"{outcome.name} · {outcome.commit} · {outcome.settings.durability}", show_header=False, min_width=60
    )
    made.add_column()
    made.add_column(justify="right")
    for name, value in _rows(outcome):
        made.add_row(name, value)
    for complaint in outcome.complaints:
        made.add_row("[red]invalid[/red]", f"[red]{complaint}[/red]")
    return made


def _rows(outcome: Outcome) -> Iterable[tuple[str, str]]:
    counts, loaded = outcome.counts, outcome.loaded
    yield "measured", f"{counts['window_s']:.2f} s"
    if outcome.birth:
        yield from _creation_rows(outcome.birth)
    if outcome.settings.sends:
        yield "calls per second", f"{outcome.calls_per_s:,.0f}"
        yield "messages per second", f"{outcome.messages_per_s:,.0f}"
        yield from _latency_rows("send", loaded.latency)
        if len(loaded.lag):
            yield "of it by the generator, p99.9", f"{loaded.lag.percentile(0.999) / 1e6:.3f} ms"
    if outcome.settings.pulls:
        yield "deliveries per second", f"{outcome.deliveries_per_s:,.0f}"
        yield "pulls, of which empty", f"{counts['pulls']:,}, {counts['empty_pulls']:,}"
        yield "delivered again", f"{counts['redelivered']:,}"
        yield from _latency_rows("pull", loaded.pull_latency)
        yield from _latency_rows("send to delivery", loaded.end_to_end)
    yield "results by code", ", ".join(f"{code}: {count:,}" for code, count in sorted(outcome.codes.items()))
    for use in outcome.servers:
        yield (
            f"CPU of {use.name}",
            f"{outcome.cpu_us_per_message(use.name):.2f} s per million messages, {use.rss_bytes / 2**20:,.0f} MiB",
        )
    if outcome.generator:
        share = outcome.generator.cpu_s / counts["window_s"] if counts["window_s"] > 0 else 0.0
        yield "CPU of the generator", f"{share:.0%} of a core"


def _creation_rows(birth: AutoCreation) -> Iterable[tuple[str, str]]:
    yield (
        "topics auto-created",
        f"{birth.topics:,} in {birth.seconds:.1f} s, {birth.topics / birth.seconds:,.0f} per second",
    )
    for name, after in birth.rss_after.items():
        yield f"memory of {name} by it", f"{birth.rss_before[name] / 2**20:,.0f} → {after / 2**20:,.0f} MiB"


def _latency_rows(what: str, histogram: Any) -> Iterable[tuple[str, str]]:
    if not len(histogram):
        return
    summary = Latency.of(histogram)
    shown = "  ".join(f"{_dotted(name)} {value:.3f}" for name, value in summary.percentiles_ms.items())
    yield f"{what}, ms", f"{shown}  max {summary.max_ms:.3f}"
    yield f"{what}, under 1 ms / 100 ms", f"{_share(summary.share_under_1_ms)} / {_share(summary.share_under_100_ms)}"


def _latency(summary: Latency) -> str:
    shown = " ".join(f"{_dotted(name)}={value:.3f}ms" for name, value in summary.percentiles_ms.items())
    shares = f"<1ms={_share(summary.share_under_1_ms)} <100ms={_share(summary.share_under_100_ms)}"
    return f"{shown} max={summary.max_ms:.3f}ms {shares}"


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def _share(share: float) -> str:
    """Format a share, rounded down: 99.9996 % must not read as all of them."""
    return f"{int(share * 1e5) / 1e3:.3f}%"


def machine() -> str:
    """Describe the machine in one line, for the head of a page of figures."""
    try:
        names = [
            row.partition(":")[2].strip()
            for row in Path("/proc/cpuinfo").read_text().splitlines()
            if row.startswith("model name")
        ]
    except OSError:
        names = []
    return f"{os.cpu_count()} cores{f' ({names[0]})' if names else ''}, Linux {platform.release()}, Python {platform.python_version()}"
