"""A million topics of one family.

Question: what do a million topics cost in auto-creation, in the engine's memory, and for sends at random over them?
Settings: one family `m.*`, 1,000,000 topics × 8 queues (`--topics` takes fewer), each auto-created by its first
message, in calls of 100 over 4 connections; then single-message calls of 128 B, page-cache durability, each to a topic
at random. `--rate 2000` makes that an open loop.
Excluded: starting up, creating the family, connecting, TLS. Memory is the engine's before the first message and after
the last first one. Compare the throughput with `penstock bench send` on the same machine, which has 16 topics. Minutes
long, so not part of `make bench`.
"""

from bench.outcome import Outcome
from bench.settings import LoadSettings
from bench.workloads import Bar, Workload


def _seconds(outcome: Outcome) -> float:
    assert outcome.birth is not None
    return outcome.birth.seconds


def _growth_mb(outcome: Outcome) -> float:
    assert outcome.birth is not None
    return outcome.birth.engine_growth_bytes / 1e6


WORKLOAD = Workload(
    "million_topics",
    LoadSettings(topics=1_000_000, topic_pattern="m.%d", family=True, timeout_s=60.0),
    (Bar("seconds to auto-create", _seconds, most=60.0), Bar("MB more in the engine", _growth_mb, most=500.0)),
)
