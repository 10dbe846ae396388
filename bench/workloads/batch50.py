"""Calls of 50 messages, mixed topics.

Question: how many messages per second are stored when a call carries 50, each to a random topic?
Settings: 16 connections, calls of 50 messages of 128 bytes over 16 topics × 8 queues at random, MEMORY; 2 s warm-up, 10
    s.
Excluded: connecting, creating topics, consumers, TLS.
"""

from bench.settings import LoadSettings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "batch50",
    LoadSettings(batch=50),
    (Bar("messages per second", lambda outcome: outcome.messages_per_s, least=1_000_000),),
)
