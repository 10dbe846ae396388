"""Bars against each peer: ratios of two systems' figures in the same run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.peers.figures import Figures
from bench.peers.penstock import JAVA, NATIVE
from bench.peers.workloads import BATCHED, BATCHED_256, CONSUMED, OPEN, PULLED, SINGLE, SINGLE_256


@dataclass(frozen=True)
class RatioBar:
    """Bound of the ratio of Penstock's figure to the peer's."""

    workload: str
    ours: str
    peer: str
    text: str
    figure: Callable[[Figures], float]
    least: float | None = None
    most: float | None = None
    peer_workload: str = ""  # the peer's workload, when it differs from ours

    def met(self, ratio: float) -> bool:
        return (self.least is None or ratio >= self.least) and (self.most is None or ratio <= self.most)

    @property
    def wanted(self) -> str:
        return f"≥ {self.least:g} ×" if self.least is not None else f"≤ 1/{1 / (self.most or 1):g}"


def rate(figures: Figures) -> float:
    return figures.messages_per_s


def cpu(figures: Figures) -> float:
    return figures.cpu_us_per_message


def tail(figures: Figures) -> float:
    return figures.p99_9_ms


BARS = (
    RatioBar(SINGLE.name, NATIVE, "rocketmq", "messages/s", rate, least=6),
    RatioBar(SINGLE.name, JAVA, "rocketmq", "messages/s", rate, least=2),
    RatioBar(SINGLE.name, NATIVE, "rocketmq", "CPU per message", cpu, most=1 / 5),
    RatioBar(SINGLE.name, NATIVE, "kafka", "messages/s", rate, least=4),
    RatioBar(SINGLE.name, JAVA, "kafka", "messages/s", rate, least=2),
    RatioBar(SINGLE.name, NATIVE, "kafka", "CPU per message", cpu, most=1 / 3),
    RatioBar(SINGLE.name, NATIVE, "nats", "messages/s", rate, least=2),
    RatioBar(SINGLE.name, NATIVE, "nats", "CPU per message", cpu, most=1 / 2),
    RatioBar(SINGLE.name, NATIVE, "rocketmq-proxy", "CPU per message", cpu, most=1 / 40),
    RatioBar(CONSUMED.name, NATIVE, "rocketmq", "messages/s", rate, least=4),
    RatioBar(CONSUMED.name, NATIVE, "rocketmq", "CPU per message", cpu, most=1 / 4),
    RatioBar(SINGLE_256.name, NATIVE, NATIVE, "messages/s by single's", rate, least=0.95, peer_workload=SINGLE.name),
    RatioBar(PULLED.name, NATIVE, "rocketmq", "CPU per message", cpu, most=1 / 2),
    RatioBar(OPEN.name, NATIVE, "rocketmq", "p99.9", tail, most=1),
    RatioBar(OPEN.name, NATIVE, "kafka", "p99.9", tail, most=1),
    RatioBar(OPEN.name, NATIVE, "nats", "p99.9", tail, most=1),
    RatioBar(BATCHED.name, NATIVE, "rocketmq", "messages/s", rate, least=3),
    RatioBar(BATCHED.name, NATIVE, "kafka", "messages/s", rate, least=1),
    RatioBar(BATCHED.name, NATIVE, "nats", "messages/s", rate, least=1),
    RatioBar(BATCHED_256.name, NATIVE, "kafka", "messages/s", rate, least=1),
)


def ratios(runs: list[Figures]) -> Iterator[tuple[RatioBar, float]]:
    """Every promise whose two systems both ran; RocketMQ is compared in its stock form."""
    by_key = {(run.workload, run.system): run for run in runs}
    for bar in BARS:
        ours, peer = by_key.get((bar.workload, bar.ours)), by_key.get((bar.peer_workload or bar.workload, bar.peer))
        if ours is not None and peer is not None and bar.figure(peer):
            yield bar, bar.figure(ours) / bar.figure(peer)


def as_dicts(runs: list[Figures]) -> list[dict[str, Any]]:
    return [
        {
            "workload": bar.workload, "ours": bar.ours, "peer": bar.peer, "figure": bar.text, "ratio": ratio,
            "least": bar.least, "most": bar.most, "met": bar.met(ratio),
        }
        for bar, ratio in ratios(runs)
    ]  # fmt: skip
