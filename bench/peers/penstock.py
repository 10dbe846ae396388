"""Penstock through its producer proxy: by the native generator, and by the same Java driver as the peers."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench import instance
from bench.generator import require_native
from bench.measure import measure, settle
from bench.peers.driver import Driven, java_driver
from bench.peers.figures import Figures, from_outcome
from bench.peers.workloads import BATCHED, OPEN, SINGLE, SIZE, THREADS, PeerWorkload, Shape, Terms
from bench.settings import LoadSettings

NATIVE = "penstock"
JAVA = "penstock-java"
BATCH = 100
SERVERS = (
    "producer_proxy",
    "engine",
)  # processes on a message's path; the supervisor, and the consumer proxy without consumers, are idle
READERS, READ_MOST = 4, 1000  # beside senders; a drain has 16 consumers of 32, as for all systems
DRAINERS, DRAIN_MOST, FILL = 16, 32, 10_000_000
DRAIN_WARMUP_S = 1.0  # short: the generator needs none, and the topics must not be empty before the window ends
SHAPES = {SINGLE.name: Shape(), OPEN.name: Shape(), BATCHED.name: Shape(batch=BATCH)}


@dataclass(frozen=True)
class Native:
    """A Penstock instance, loaded by the generator of `penstock bench`."""

    instance: instance.BenchInstance
    name: str = NATIVE

    def answers(self, workload: PeerWorkload) -> bool:
        return True

    def run(self, workload: PeerWorkload, terms: Terms) -> Figures:
        settings = settings_of(workload, terms)
        outcome = measure(f"{self.name}, {workload.name}", settings, self.instance, lambda text: None)
        figures = from_outcome(self.name, workload.name, outcome)
        passed = (*SERVERS, "consumer_proxy") if workload.consumers else SERVERS
        figures.servers[:] = [use for use in figures.servers if use.name in passed]
        return figures


@contextmanager
def native() -> Iterator[Native]:
    require_native()
    with instance.own() as own:
        yield Native(own)


@contextmanager
def java() -> Iterator[Driven]:
    require_native()  # the generator settles the topics
    with tempfile.TemporaryDirectory(prefix="penstock-bench-java-") as folder, instance.own() as own:
        settings = settings_of(SINGLE, Terms(1, 0))
        with own.prepared(settings) as target:
            settle(settings, target)
            pids = {name: pid for name, pid in own.pids.items() if name in SERVERS}
            env = {"PENSTOCK_APP": target.app, "PENSTOCK_KEY_ID": target.key_id, "PENSTOCK_SECRET": target.secret}
            place = f"{target.producer[0]}:{target.producer[1]}"
            yield Driven(JAVA, pids, java_driver(Path(folder)), "penstock", place, SHAPES, env)


def settings_of(workload: PeerWorkload, terms: Terms) -> LoadSettings:
    settings = LoadSettings(
        connections=THREADS, batch=BATCH if workload.batched else 1, size=SIZE, topics=workload.topics, queues=workload.queues,
        topic_pattern=f"{workload.prefix}%d", rate=workload.rate, seconds=terms.seconds, warmup_s=terms.warmup_s,
    )  # fmt: skip
    if workload.drains:
        warmup_s = min(terms.warmup_s, DRAIN_WARMUP_S)
        return replace(settings, mode="pull", consumers=DRAINERS, max_messages=DRAIN_MOST, fill=FILL, warmup_s=warmup_s)
    return replace(settings, mode="both", consumers=READERS, max_messages=READ_MOST) if workload.consumers else settings
