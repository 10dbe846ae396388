"""Cost of a million topics: auto-creation, memory, sends at random over all of them, and restarts.

Settings: one family of 1,000,000 topics × 8 queues (times --scale), auto-created by their first messages in calls of
100 over 4 connections; then single-message calls of 128 B, MEMORY, over 16 topics of the same instance and over the
million, interleaved, an open loop of 2,000/s over the million, a clean stop and a `kill -9` of the engine. Excluded:
creating the family, connecting, TLS.
"""

import signal
from collections.abc import Callable
from dataclasses import replace

from bench import instance
from bench.alone.restarting import seconds_to_first_send
from bench.alone.turns import in_turns
from bench.auto_creation import auto_create
from bench.figures import Figure
from bench.generator import run_load
from bench.measure import on_one_core, settle
from bench.settings import LoadSettings

TOPICS = 1_000_000
RATE = 2_000


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    many = LoadSettings(
        topics=max(100, int(TOPICS * scale)), topic_pattern="m.%d", family=True, seconds=seconds, timeout_s=60.0
    )
    few = LoadSettings(seconds=seconds)
    with instance.own() as own, own.prepared(few) as beside, own.prepared(many) as target:
        settle(few, beside)
        settle(replace(many, topics=1), target)
        say(f"million: {many.topics:,} first messages")
        birth = auto_create(many, target, own.pids)
        say(f"million: auto-created in {birth.seconds:.1f} s; interleaved sends")
        at_16, at_all = in_turns([(few, beside), (many, target)])
        with on_one_core():
            paced = run_load(replace(many, rate=RATE), target).latency
        say("million: restarts")
        clean = seconds_to_first_send(own, target, "m.0", signal.SIGTERM)
        killed = seconds_to_first_send(own.now(), target, "m.0", signal.SIGKILL)
    return [
        Figure(f"{birth.topics:,} topics auto-created", birth.seconds, "s", most=60),
        Figure("first messages refused as OVERLOADED", birth.refused, "", most=0),
        Figure("engine's memory, more than before", birth.engine_growth_bytes / 1e6, "MB", most=500),
        Figure("single-message calls over 16 topics", at_16.calls_per_s, "calls/s"),
        Figure("single-message calls at random over all", at_all.calls_per_s, "calls/s"),
        Figure("share of the rate at 16 topics", at_all.calls_per_s / at_16.calls_per_s, "", least=0.4),
        Figure(f"p99 at {RATE:,} messages/s over all", paced.percentile(0.99) / 1e6, "ms", most=2),
        Figure("clean stop to first stored message", clean, "s", most=3),
        Figure("kill -9 to first stored message", killed, "s", most=10),
    ]
