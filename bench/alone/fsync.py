"""Single-message calls per second that are on disk before their answers, from 16 and from 64 connections.

Settings: 128 B, 16 topics × 8 queues, FSYNC (group commit), a fresh instance each. The data directory is in TMPDIR: a
memory file system makes the figures worthless. Excluded: creating topics, connecting, consumers, TLS.
"""

from collections.abc import Callable

from bench import instance
from bench.figures import Figure
from bench.measure import measure
from bench.settings import LoadSettings

LEAST = {16: 40_000, 64: 80_000}


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    found = []
    for connections, least in LEAST.items():
        settings = LoadSettings(durability="fsync", connections=connections, seconds=seconds)
        with instance.own() as own:
            outcome = measure(f"fsync, {connections} connections", settings, own, say)
        name = f"{connections} connections"
        tail = outcome.loaded.latency.percentile(0.999) / 1e6
        found.append(Figure(f"{name}: calls on disk", outcome.calls_per_s, "calls/s", least=least))
        found.append(Figure(f"{name}: p99.9", tail, "ms", most=3))
        cpu = outcome.cpu_us_per_message("producer_proxy", "engine")
        found.append(Figure(f"{name}: CPU of producer proxy and engine", cpu, "µs per message"))
    return found
