"""Closed loops on a master with its slave in sync, and on a lone engine.

Question: how much of a lone engine's throughput is left when every message is on two brokers, and at what CPU on each?
Settings: 16 connections, 128 bytes, 16 topics × 8 queues, single-message calls and calls of 50; with a slave
    REPLICATED, alone MEMORY. The variants run in turns, an eighth of --seconds each: the machine's other work affects
    all alike. Each turn begins once the disk has what the turn before has written, and all processes are idle: what
    one variant leaves to be sealed and written would take another one's time.
Variants: `penstock up`, whose proxies reach the engine by a socket file; the same over TCP, as the proxies of a group
    with replicas have it; `penstock up --replicas 2`. Ratios are to the first. The CPU of replication on the
    master is what it takes more than the second.
Placement: the generator has one core, and the producer proxy, which each call passes twice, is kept off it; all else goes
    where the kernel puts it. The ratios are shown for "any core", too: there the kernel places the proxy. With a
    lone engine it leaves it on the other core by itself. With a slave it moves it to the generator's again and
    again, and then calls, proxy and generator wait for one core while the other one is idle.
Excluded: connecting, creating topics, consumers, TLS. The generator, both proxies and both brokers share the cores.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import instance
from bench.errors import RunError
from bench.figures import Figure
from bench.generator import STORED, LoadTarget, run_load
from bench.measure import on_one_core, settle
from bench.replicas.group import group_of
from bench.servers import Sampler, cpu_seconds
from bench.settings import LoadSettings

ROUNDS = 8
"""Throughput with a slave depends on the core on which the kernel puts the proxy. Several windows average over that."""
WARMUP_S = 0.5
REST_LOOK_S, REST_S_MAX = 0.4, 60.0
REST_SHARE = 0.1
"""Share of a core that an idle process takes at most."""
LONG_FOLDER = "a-socket-file-in-this-folder-has-too-long-a-path-" * 3
FORMS = {1: ("single", 0.55, 5.0), 50: ("batches of 50", 0.60, 1.5)}
"""By messages per call: name, least ratio to the lone engine, most µs of replication on each side."""


@dataclass
class Variant:
    """One of the compared instances and the sums of its rounds."""

    settings: LoadSettings
    target: LoadTarget
    pids: dict[str, int]
    is_apart: bool = True
    messages: int = 0
    seconds: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    rss_bytes: dict[str, list[int]] = field(default_factory=dict)

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds

    def cpu_us(self, name: str) -> float:
        """CPU of one process per message."""
        return self.cpu_s[name] / self.messages * 1e6

    def rss_mb(self, name: str) -> int:
        """Of one process, the mean of the ends of its windows: it grows with the log, and by the step."""
        return round(statistics.mean(self.rss_bytes[name]) / 1e6)

    def run_part(self, seconds: float, batch: int) -> None:
        """Raises RunError: a message was refused."""
        part = replace(self.settings, seconds=seconds, warmup_s=WARMUP_S, batch=batch)
        sampler = Sampler(self.pids)
        with on_one_core([self.pids["producer_proxy"]] if self.is_apart else ()):
            counts = run_load(part, self.target, sampler.on_window).counts
        if refused := sorted(set(counts["codes"]) - set(STORED)):
            raise RunError(f"{part.durability}, calls of {batch}: answers with codes {refused}")
        self.messages += counts["messages"]
        self.seconds += counts["window_s"]
        for use in sampler.uses:
            self.cpu_s[use.name] = self.cpu_s.get(use.name, 0.0) + use.cpu_s
            self.rss_bytes.setdefault(use.name, []).append(use.rss_bytes)


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    alone, copied = LoadSettings(durability="memory"), LoadSettings(durability="replicated")
    found: list[Figure] = []
    with (
        instance.own() as by_file, _over_tcp() as by_tcp, instance.own("--replicas", "2") as both,
        by_file.prepared(alone) as first, by_tcp.prepared(alone) as second, both.prepared(copied) as third,
        group_of(both) as group,
    ):  # fmt: skip
        group.wait_in_sync()
        for settings, target in ((alone, first), (alone, second), (copied, third)):
            settle(settings, target)
        for batch, (name, ratio, cpu_us) in FORMS.items():
            say(f"calls: {name}")
            apart, anywhere = (
                [
                    Variant(alone, first, by_file.pids, is_apart),
                    Variant(alone, second, by_tcp.pids, is_apart),
                    Variant(copied, third, group.pids, is_apart),
                ]
                for is_apart in (True, False)
            )
            for _ in range(ROUNDS):
                for variant in (*apart, *anywhere):
                    rest([pid for each in apart for pid in each.pids.values()])
                    variant.run_part(seconds / ROUNDS, batch)
            if not group.is_in_sync:
                raise RunError(f"{name}: the slave has left the in-sync set, so the figures are those of a lone master")
            found += figures(name, apart, batch, ratio, cpu_us)
            found += ratios(f"{name}, proxy on any core", anywhere, ratio)
    return found


def rest(pids: Sequence[int]) -> None:
    """Wait until the disk has all that was written, and none of the processes works. Raises RunError: they do not rest."""
    os.sync()
    ends = time.monotonic() + REST_S_MAX
    before = [cpu_seconds(Path(f"/proc/{pid}")) for pid in pids]
    while time.monotonic() < ends:
        time.sleep(REST_LOOK_S)
        now = [cpu_seconds(Path(f"/proc/{pid}")) for pid in pids]
        if all(used - earlier <= REST_SHARE * REST_LOOK_S for earlier, used in zip(before, now, strict=True)):
            return
        before = now
    raise RunError(f"the processes were not idle for {REST_S_MAX:g} s")


def figures(name: str, variants: Sequence[Variant], batch: int, ratio: float, cpu_us: float) -> Iterator[Figure]:
    """Figures of one form of call: of the lone engine, the lone engine over TCP, and the master with a slave."""
    alone, over_tcp, both = variants
    unit = "calls/s" if batch == 1 else "messages/s"
    yield Figure(f"{name}: with a slave in sync", both.messages_per_s, unit)
    yield Figure(f"{name}: a lone engine", alone.messages_per_s, unit)
    yield Figure(f"{name}: a lone engine over TCP", over_tcp.messages_per_s, unit)
    yield from ratios(name, variants, ratio)
    yield Figure(f"{name}: CPU of the producer proxy", both.cpu_us("producer_proxy"), "µs/message")
    yield Figure(f"{name}: CPU of the master", both.cpu_us("master"), "µs/message")
    yield Figure(f"{name}: CPU of a lone engine over TCP", over_tcp.cpu_us("engine"), "µs/message")
    more_us = both.cpu_us("master") - over_tcp.cpu_us("engine")
    yield Figure(f"{name}: CPU of replication, master", more_us, "µs/message", most=cpu_us)
    yield Figure(f"{name}: CPU of replication, slave", both.cpu_us("slave"), "µs/message", most=cpu_us)
    master_mb, slave_mb = (both.rss_mb(role) for role in ("master", "slave"))
    yield Figure(f"{name}: RSS of the master", master_mb, "MB")
    yield Figure(f"{name}: RSS of the slave", slave_mb, "MB", most=master_mb)


def ratios(name: str, variants: Sequence[Variant], least: float) -> Iterator[Figure]:
    """Throughput with a slave, divided by that of each lone engine."""
    alone, over_tcp, both = variants
    yield Figure(f"{name}: with a slave, of a lone engine's", both.messages_per_s / alone.messages_per_s, "×", least)
    yield Figure(f"{name}: the same over TCP", both.messages_per_s / over_tcp.messages_per_s, "×")


@contextmanager
def _over_tcp() -> Iterator[instance.BenchInstance]:
    """A lone engine that its proxies reach over TCP: the path of a socket file would be too long there."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name) / LONG_FOLDER
        folder.mkdir()
        with instance.up_in(folder) as made:
            yield made
