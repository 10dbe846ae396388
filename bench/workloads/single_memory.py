"""Single-message calls, in the page cache.

Question: how many single-message calls per second end in the page cache, and at what CPU?
Settings: 16 connections with one call in flight each, 128-byte bodies, 16 topics × 8 queues, no keys, MEMORY; 2 s
    warm-up, 10 s.
Excluded: connecting, creating topics, consumers, TLS. The generator runs beside the servers and takes its share of the
    cores.
"""

from bench.settings import LoadSettings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "single_memory",
    LoadSettings(),
    (
        Bar("calls per second", lambda outcome: outcome.calls_per_s, least=80_000),
        Bar(
            "CPU µs per message, proxy + engine",
            lambda outcome: outcome.cpu_us_per_message("producer_proxy", "engine"),
            most=12,
        ),
    ),
)
