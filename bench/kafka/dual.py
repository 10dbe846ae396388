"""Dual write: CPU of the producer proxy and latency of its callers, with and without a secondary, and while Kafka hangs.

Question: what does a secondary in Kafka cost a topic at home in the engine? Settings: open loops of 8,000 messages/s in
calls of 50 and of 2,000 calls/s of one message, 128 bytes, 64 keys, 4 topics of 8 queues, MEMORY, 16 connections. Each
form has five times --seconds, in windows of 2 s: the forms take turns, so that what else the machine does affects all
alike. CPU is that of the proxy's process until it is idle again, so that the copies are in it. The p99 is that of all
calls of a form. A stopped broker has five windows of --seconds, each beside one without a secondary, in which it is
stopped, too: on these two cores callers feel even an idle one.
Broker and bridge give way to all others (SCHED_IDLE): on a machine of two cores the latency would show their work
otherwise. They still share caches, memory and wake-ups with the others. So a third form is measured: without a
secondary, while a producer of its own writes as many records to the same broker. What a dual write itself adds is the
difference to that one; the bar of the p99 is on both ratios. Some windows with a secondary come first, in which the
broker's virtual machine compiles: its compiler holds a core for 4 ms, whatever its priority. Excluded: CPU of engine,
bridge, broker, generator.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bench import kafka_drivers
from bench.errors import RunError
from bench.figures import Figure
from bench.generator import STORED, LoadTarget, run_load
from bench.histogram import Histogram
from bench.kafka.desk import CLUSTER, KafkaDesk, kafka_desk
from bench.measure import on_one_core, settle
from bench.settings import LoadSettings
from common.kafka.drivers import open_driver

PROXY = "producer_proxy"
TOPICS = 4
PLAIN, BESIDE, DUAL = "plain", "beside", "dual"
"""Forms: without a secondary; so, while as many records go to the broker; with a secondary."""
STREAM_TOPIC = "beside"
SHAPES = {50: 8_000.0, 1: 2_000.0}
"""Messages per second by messages per call: what the bridge can carry on two cores beside all others."""
WINDOW_S = 2.0
SECONDS_FACTOR = 5
"""The windows of one form take --seconds times this."""
WARM_WINDOWS, HANGING_WINDOWS = 10, 5
CPU_SHARE_MAX, LATENCY_SHARE_MAX = 1.3, 1.1


@dataclass
class Found:
    """Sums over the windows of one form."""

    cpu_s: float = 0.0
    messages: int = 0
    latency: Any = field(default_factory=Histogram)

    @property
    def cpu_us(self) -> float:
        """Of the proxy, per message."""
        return self.cpu_s / self.messages * 1e6

    @property
    def p99_ms(self) -> float:
        return self.latency.percentile(0.99) / 1e6

    def add(self, other: "Found") -> None:
        self.cpu_s, self.messages = self.cpu_s + other.cpu_s, self.messages + other.messages
        self.latency.add(other.latency)

    def __str__(self) -> str:
        return f"{self.cpu_us:.2f} µs of CPU per message, p50 {self.latency.percentile(0.5) / 1e6:.3f} ms, p99 {self.p99_ms:.3f} ms"


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    figures: list[Figure] = []
    with kafka_desk() as desk, ExitStack() as stack:
        desk.create(
            {f"dual-{number}": {"secondary": f"kafka:{CLUSTER}", "id_window_ms": 0} for number in range(TOPICS)}
        )
        desk.create({f"plain-{number}": {"id_window_ms": 0} for number in range(TOPICS)}, on_kafka=False)
        with closing(open_driver().admin(desk.connection)) as admin:
            kafka_drivers.create(admin, STREAM_TOPIC)
        for batch, rate in SHAPES.items():
            settings = LoadSettings(batch=batch, rate=rate, topics=TOPICS, keys=64, seconds=WINDOW_S, warmup_s=0.0)
            loads = {}
            for kind in (PLAIN, DUAL):
                part = replace(settings, topic_pattern=f"{kind}-%d")
                loads[kind] = part, stack.enter_context(desk.instance.prepared(part))
                settle(*loads[kind])
            with _stream(desk, rate):
                for _ in range(WARM_WINDOWS):
                    _window(desk, *loads[DUAL])
            desk.give_way()
            figures += _compared(desk, loads, batch, seconds, say)
    return figures


def _compared(
    desk: KafkaDesk,
    loads: dict[str, tuple[LoadSettings, LoadTarget]],
    batch: int,
    seconds: float,
    say: Callable[[str], None],
) -> list[Figure]:
    found = {kind: Found() for kind in (PLAIN, BESIDE, DUAL)}
    for number in range(max(1, round(SECONDS_FACTOR * seconds / WINDOW_S))):
        for kind, sum_of_kind in found.items():
            with ExitStack() as stack:
                if kind == BESIDE:
                    stack.enter_context(_stream(desk, SHAPES[batch]))
                window = _window(desk, *loads[DUAL if kind == DUAL else PLAIN])
            sum_of_kind.add(window)
            say(f"dual: {batch} per call, window {number + 1}, {kind}: {window}")
    calm, hanging = Found(), Found()
    long = {kind: (replace(settings, seconds=seconds), target) for kind, (settings, target) in loads.items()}
    for _ in range(HANGING_WINDOWS):
        with desk.stopped_broker():
            calm.add(beside_stopped := _window(desk, *long[PLAIN]))
            hanging.add(window := _window(desk, *long[DUAL]))
        desk.wait_repaired()
        say(f"dual: {batch} per call, Kafka hangs: without a secondary {beside_stopped}; with one {window}")
    plain, beside, dual = found.values()
    name = f"{batch} per call"
    return [
        Figure(f"{name}: proxy, without a secondary", plain.cpu_us, "µs of CPU per message"),
        Figure(f"{name}: proxy, with one", dual.cpu_us, "µs of CPU per message"),
        Figure(f"{name}: ratio", dual.cpu_us / plain.cpu_us, "", most=CPU_SHARE_MAX),
        Figure(f"{name}: proxy, without one beside as many records", beside.cpu_us, "µs of CPU per message"),
        Figure(f"{name}: ratio to that", dual.cpu_us / beside.cpu_us, ""),
        Figure(f"{name}: p99 without a secondary", plain.p99_ms, "ms"),
        Figure(f"{name}: p99 with one", dual.p99_ms, "ms"),
        Figure(f"{name}: ratio of p99", dual.p99_ms / plain.p99_ms, "", most=LATENCY_SHARE_MAX),
        Figure(f"{name}: p99 without one beside as many records", beside.p99_ms, "ms"),
        Figure(f"{name}: ratio of p99 to that", dual.p99_ms / beside.p99_ms, "", most=LATENCY_SHARE_MAX),
        Figure(f"{name}: p99 while Kafka hangs", hanging.p99_ms, "ms"),
        Figure(f"{name}: ratio of p99 while Kafka hangs", hanging.p99_ms / calm.p99_ms, "", most=LATENCY_SHARE_MAX),
        Figure(f"{name}: CPU while Kafka hangs, ratio", hanging.cpu_us / calm.cpu_us, ""),
    ]


@contextmanager
def _stream(desk: KafkaDesk, per_s: float) -> Iterator[None]:
    """So many records per second go to the broker during the block, from a process of their own."""
    command = [sys.executable, "-P", "-m", "bench.kafka.stream", desk.bootstrap, STREAM_TOPIC, str(per_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise RunError("dual write: the stream beside it has not begun")
            yield
            if process.poll() is not None:
                raise RunError("dual write: the stream beside it has ended")
        finally:
            process.kill()


def _window(desk: KafkaDesk, settings: LoadSettings, target: LoadTarget) -> Found:
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
    return Found(used_s, sum(codes.values()), loaded.latency)
