"""Latency of single-message calls in an open loop, with a slave in sync and on a lone engine.

Question: how long does a caller wait for a message that is on two brokers, at 5,000 and at 20,000 messages/s?
Settings: Poisson times over 16 connections, 128 bytes, 16 topics × 8 queues; `penstock up --replicas 2` with
    REPLICATED, then `penstock up` with MEMORY, for --seconds each. Latency counts from the planned time.
Excluded: connecting, creating topics, consumers, TLS; the first two seconds.
"""

from collections.abc import Callable, Iterator

from bench import instance
from bench.figures import Figure
from bench.measure import measure
from bench.outcome import Outcome
from bench.replicas.group import group_of
from bench.settings import LoadSettings

RATES = {5_000: 1.0, 20_000: 2.0}
"""Most milliseconds at p99 with a slave in sync, by messages per second."""


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    found: list[Figure] = []
    with instance.own() as alone, instance.own("--replicas", "2") as both, group_of(both) as group:
        group.wait_in_sync()
        for rate, most_ms in RATES.items():
            copied = LoadSettings(rate=rate, seconds=seconds, durability="replicated")
            found += figures(f"{rate:,}/s", measure(f"{rate:,}/s, replicated", copied, both, say), most_ms)
            lone = LoadSettings(rate=rate, seconds=seconds)
            found += figures(f"{rate:,}/s, lone engine", measure(f"{rate:,}/s, lone engine", lone, alone, say), None)
    return found


def figures(name: str, outcome: Outcome, most_ms: float | None) -> Iterator[Figure]:
    """Percentiles of one open loop; a run with refused or unsent messages has a figure of them."""
    latency = outcome.loaded.latency
    yield Figure(f"{name}: p50", latency.percentile(0.5) / 1e6, "ms")
    yield Figure(f"{name}: p99", latency.percentile(0.99) / 1e6, "ms", most=most_ms)
    yield Figure(f"{name}: p99.9", latency.percentile(0.999) / 1e6, "ms")
    if outcome.complaints:
        yield Figure(f"{name}: {'; '.join(outcome.complaints)}", len(outcome.complaints), "faults", most=0)
