"""How many messages a second go in when a call carries 50, each to a topic of its own choice?

Settings: 16 connections, calls of 50 messages of 128 bytes over 16 topics × 8 queues at random, MEMORY; 2 s warm-up, 10 s.
Excluded: connecting, creating topics, consumers, TLS.
"""

from bench.settings import Settings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "batch50",
    Settings(batch=50),
    (Bar("messages a second", lambda outcome: outcome.messages_per_s, least=1_000_000),),
)
