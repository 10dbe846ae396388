"""How fast and how cheap are single-message calls that end in the page cache?

Settings: 16 connections with one call in flight each, 128-byte bodies, 16 topics × 8 queues, no keys, MEMORY; 2 s warm-up, 10 s.
Excluded: connecting, creating topics, consumers, TLS. The generator runs beside the servers and takes its share of the cores.
"""

from bench.settings import Settings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "single_memory",
    Settings(),
    (
        Bar("calls a second", lambda outcome: outcome.calls_per_s, least=80_000),
        Bar(
            "CPU µs a message, proxy + engine",
            lambda outcome: outcome.cpu_us_per_message("producer_proxy", "engine"),
            most=12,
        ),
    ),
)
