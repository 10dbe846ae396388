"""Dual write: CPU of the producer proxy and latency of its callers, with and without a secondary, and while Kafka hangs.

Question: what does a secondary in Kafka cost a topic at home in the engine? Settings: open loops of 8,000 messages/s in
calls of 50 and of 2,000 calls/s of one message, 128 bytes, 64 keys, 4 topics of 8 queues, MEMORY, 16 connections. Rounds
with and without a secondary alternate. CPU is that of the proxy's process until it is idle again, so that the copies
are in it. Broker and bridge give way to all others (nice 19): on a machine of two cores the latency would show their work
otherwise. Excluded: CPU of engine, bridge, broker, generator.
"""

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from bench.errors import RunError
from bench.figures import Figure
from bench.generator import STORED, LoadTarget, run_load
from bench.kafka.desk import CLUSTER, KafkaDesk, kafka_desk
from bench.measure import on_one_core, settle
from bench.settings import LoadSettings

PROXY = "producer_proxy"
TOPICS = 4
SHAPES = {50: 8_000.0, 1: 2_000.0}
"""Messages per second by messages per call: what the bridge can carry on two cores beside all others."""
ROUNDS = 5
CPU_SHARE_MAX, LATENCY_SHARE_MAX = 1.3, 1.1


class Round(NamedTuple):
    cpu_us: float
    p50_ms: float
    p99_ms: float


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    figures: list[Figure] = []
    with kafka_desk() as desk, ExitStack() as stack:
        desk.create(
            {f"dual-{number}": {"secondary": f"kafka:{CLUSTER}", "id_window_ms": 0} for number in range(TOPICS)}
        )
        desk.create({f"plain-{number}": {"id_window_ms": 0} for number in range(TOPICS)}, on_kafka=False)
        desk.give_way()
        for batch, rate in SHAPES.items():
            settings = LoadSettings(batch=batch, rate=rate, topics=TOPICS, keys=64, seconds=seconds, warmup_s=0.0)
            loads = {}
            for kind in ("plain", "dual"):
                part = replace(settings, topic_pattern=f"{kind}-%d")
                loads[kind] = part, stack.enter_context(desk.instance.prepared(part))
                settle(*loads[kind])
            figures += _compared(desk, loads, batch, say)
    return figures


def _compared(
    desk: KafkaDesk, loads: dict[str, tuple[LoadSettings, LoadTarget]], batch: int, say: Callable[[str], None]
) -> list[Figure]:
    found: dict[str, list[Round]] = {kind: [] for kind in loads}
    for number in range(ROUNDS):
        for kind, (settings, target) in loads.items():
            found[kind].append(_round(desk, settings, target))
            say(f"dual: {batch} per call, round {number + 1}, {kind}: {found[kind][-1]}")
    with desk.stopped_broker():
        hanging = _round(desk, *loads["dual"])
    desk.settled_cpu_s(PROXY)
    say(f"dual: {batch} per call, Kafka hangs: {hanging}")
    plain, dual = (
        Round(*(statistics.median(each) for each in zip(*found[kind], strict=True))) for kind in ("plain", "dual")
    )
    name = f"{batch} per call"
    return [
        Figure(f"{name}: proxy, without a secondary", plain.cpu_us, "µs of CPU per message"),
        Figure(f"{name}: proxy, with one", dual.cpu_us, "µs of CPU per message"),
        Figure(f"{name}: ratio", dual.cpu_us / plain.cpu_us, "", most=CPU_SHARE_MAX),
        Figure(f"{name}: p99 without a secondary", plain.p99_ms, "ms"),
        Figure(f"{name}: p99 with one", dual.p99_ms, "ms"),
        Figure(f"{name}: ratio of p99", dual.p99_ms / plain.p99_ms, "", most=LATENCY_SHARE_MAX),
        Figure(f"{name}: p99 while Kafka hangs", hanging.p99_ms, "ms"),
        Figure(f"{name}: ratio of p99 while Kafka hangs", hanging.p99_ms / plain.p99_ms, "", most=LATENCY_SHARE_MAX),
        Figure(f"{name}: CPU while Kafka hangs, ratio", hanging.cpu_us / plain.cpu_us, ""),
    ]


def _round(desk: KafkaDesk, settings: LoadSettings, target: LoadTarget) -> Round:
    before = desk.settled_cpu_s(PROXY)
    with on_one_core():
        loaded = run_load(settings, target)
    used_s = desk.settled_cpu_s(PROXY) - before
    codes: dict[int, int] = {}
    for kind in ("codes", "codes_outside"):
        for code, count in loaded.counts[kind].items():
            codes[code] = codes.get(code, 0) + count
    if refused := {code: count for code, count in codes.items() if code not in STORED}:
        raise RunError(f"dual write: {refused} (code: messages)")
    latency = loaded.latency
    return Round(used_s / sum(codes.values()) * 1e6, latency.percentile(0.5) / 1e6, latency.percentile(0.99) / 1e6)
