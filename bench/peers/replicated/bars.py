"""Bars against each peer: ratios of two systems' medians of switch-over, and of their figures, in the same run."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bench.peers.figures import Figures
from bench.peers.replicated.kafka import QUICK
from bench.peers.replicated.penstock import JAVA, NATIVE
from bench.peers.replicated.switch_over import STRIKES, SwitchOver
from bench.peers.replicated.workloads import COPIED, PACED

PEERS: dict[str, float | None] = {"rocketmq": 1 / 10, "kafka": 1 / 5, QUICK: 1 / 5, "nats": None}
"""Largest allowed ratio of our gap to the peer's in a switch-over; None: shown for comparison only."""


@dataclass(frozen=True)
class Ratio:
    """Ours divided by the peer's."""

    what: str
    ours: str
    peer: str
    ratio: float
    most: float | None = None

    @property
    def met(self) -> bool:
        return self.most is None or self.ratio <= self.most

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def ratios(runs: Iterable[Figures], switches: Iterable[SwitchOver]) -> Iterator[Ratio]:
    """All of which both systems were measured."""
    gaps = medians(switches)
    for peer, most in PEERS.items():
        for strike in STRIKES:
            ours, theirs = gaps.get((JAVA, strike)), gaps.get((peer, strike))
            if ours is not None and theirs:
                yield Ratio(f"switch-over after {strike}, median", JAVA, peer, ours / theirs, most)
    by_key = {(run.workload, run.system): run for run in runs}
    figures: tuple[tuple[str, str, Callable[[Figures], float]], ...] = (
        (COPIED.name, "messages/s", lambda run: run.messages_per_s),
        (PACED.name, "p99.9", lambda run: run.p99_9_ms),
    )
    for workload, text, figure in figures:
        for peer in PEERS:
            for name in (NATIVE, JAVA):
                mine, other = by_key.get((workload, name)), by_key.get((workload, peer))
                if mine is not None and other is not None and figure(other):
                    yield Ratio(f"{workload}, {text}", name, peer, figure(mine) / figure(other))


def medians(switches: Iterable[SwitchOver]) -> dict[tuple[str, str], float]:
    """Median gap in ms by system and strike."""
    found: dict[tuple[str, str], list[float]] = {}
    for each in switches:
        found.setdefault((each.system, each.strike), []).append(each.gap_ms)
    return {key: statistics.median(gaps) for key, gaps in found.items()}
