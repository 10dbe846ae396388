"""Figures of one system under one workload, by any driver."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bench.errors import RunError
from bench.outcome import Latency, Outcome
from bench.servers import ServerUse

DRIVER = "driver"
PERCENTILES = ("p50", "p99", "p99_9", "p99_99")


@dataclass(frozen=True)
class Figures:
    system: str
    workload: str
    calls: int
    messages: int
    window_s: float
    latency: dict[str, float]  # milliseconds by name, as bench.outcome.Latency.as_dict
    start_lag: dict[str, float]  # open loop: the driver's share of the latency
    servers: list[ServerUse] = field(default_factory=list)
    driver_cpu_s: float = 0.0
    complaints: list[str] = field(default_factory=list)
    deliveries: int = 0  # acknowledged ones

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.window_s if self.window_s else 0.0

    @property
    def deliveries_per_s(self) -> float:
        return self.deliveries / self.window_s if self.window_s else 0.0

    @property
    def cpu_us_per_message(self) -> float:
        """CPU of all server processes per message, in µs; the same number is seconds per million messages."""
        return sum(use.cpu_s for use in self.servers) / self.messages * 1e6 if self.messages else 0.0

    @property
    def rss_bytes(self) -> int:
        return sum(use.rss_bytes for use in self.servers)

    @property
    def p99_9_ms(self) -> float:
        return self.latency["p99_9"]

    def as_dict(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "workload": self.workload,
            "calls": self.calls,
            "messages": self.messages,
            "window_s": self.window_s,
            "messages_per_s": self.messages_per_s,
            "deliveries_per_s": self.deliveries_per_s,
            "latency": self.latency,
            "start_lag": self.start_lag,
            "cpu_s_per_million_messages": {
                use.name: use.cpu_s / self.messages * 1e6 if self.messages else 0.0 for use in self.servers
            },
            "rss_bytes": {use.name: use.rss_bytes for use in self.servers},
            "driver_cpu_s": self.driver_cpu_s,
            "complaints": self.complaints,
        }


def from_driver(system: str, workload: str, line: str, uses: Iterable[ServerUse]) -> Figures:
    """Make the figures from a driver's last line and the samples of the window.

    Raises:
        RunError: the line is not what a driver prints.
    """
    try:
        said = json.loads(line)
        latency, lag = dict(said["latency"]), dict(said["start_lag"])
        calls, messages, window_s = int(said["calls"]), int(said["messages"]), float(said["window_s"])
        complaints = list(_complaints(dict(said["errors"]), int(said["unsent"]), calls, bool(said.get("dry"))))
        deliveries = int(said.get("deliveries", 0))
        missing = [name for name in (*PERCENTILES, "max_ms") if name not in latency]
    except (ValueError, KeyError, TypeError) as fault:
        raise RunError(f"{system}: the driver printed {line[:200]!r} in place of its figures") from fault
    if missing:
        raise RunError(f"{system}: the driver's latencies lack {', '.join(missing)}")
    uses = list(uses)
    servers = [use for use in uses if use.name != DRIVER]
    driver_cpu_s = sum(use.cpu_s for use in uses if use.name == DRIVER)
    return Figures(
        system, workload, calls, messages, window_s, latency, lag, servers, driver_cpu_s, complaints, deliveries
    )


def from_outcome(system: str, workload: str, outcome: Outcome) -> Figures:
    """Convert a run of the native generator to the same form."""
    counts, loaded = outcome.counts, outcome.loaded
    calls, of_calls = ("calls", loaded.latency) if outcome.settings.sends else ("pulls", loaded.pull_latency)
    latency, lag = Latency.of(of_calls).as_dict(), Latency.of(loaded.lag).as_dict()
    driver_cpu_s = outcome.generator.cpu_s if outcome.generator else 0.0
    return Figures(
        system, workload, counts[calls], outcome.moved, counts["window_s"], latency, lag,
        list(outcome.servers), driver_cpu_s, list(outcome.complaints), counts["deliveries"],
    )  # fmt: skip


def _complaints(errors: dict[str, int], unsent: int, calls: int, dry: bool) -> Iterable[str]:
    """Return the reasons why the figures are invalid."""
    for text, count in errors.items():
        yield f"{count:,} calls failed: {text}"
    if unsent:
        yield f"{unsent:,} planned calls could not be sent in time"
    if dry:
        yield "the topics ran dry before the window closed"
    if not calls:
        yield "no call ended in the window"
