"""Open loop of 10,000 calls/s.

Question: what is the latency of a caller among many, at a rate far below capacity?
Settings: 10,000 single messages/s at Poisson times over 16 connections, 128 bytes, 16 topics × 8 queues, MEMORY; 2 s
warm-up, 20 s. Latency counts from the planned time, so a stall is charged to every call that fell due in it.
Excluded: connecting, creating topics, consumers, TLS.
"""

from bench.settings import LoadSettings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "open_loop_10k",
    LoadSettings(rate=10_000, seconds=20),
    (Bar("p99.9 in ms", lambda outcome: outcome.loaded.latency.percentile(0.999) / 1e6, most=1.0),),
)
