"""Named workloads; each module's docstring gives question, settings and exclusions."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from bench.outcome import Outcome
from bench.settings import LoadSettings

SUITE = (
    "single_memory",
    "single_fsync",
    "batch50",
    "pull1000",
    "pop32",
    "key_order32",
    "open_loop_10k",
    "single_with_consumers",
)
NAMES = (*SUITE, "million_topics")


@dataclass(frozen=True)
class Bar:
    """A figure that the project promises, and its function of an outcome."""

    text: str
    figure: Callable[[Outcome], float]
    least: float | None = None
    most: float | None = None

    def met(self, outcome: Outcome) -> bool:
        value = self.figure(outcome)
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @property
    def wanted(self) -> str:
        return f"≥ {_plain(self.least)}" if self.least is not None else f"≤ {_plain(self.most)}"


def _plain(value: float | None) -> str:
    """Format without the exponent that `g` would use for a million."""
    return f"{value:,.6f}".rstrip("0").rstrip(".") if value is not None else ""


@dataclass(frozen=True)
class Workload:
    name: str
    settings: LoadSettings
    bars: tuple[Bar, ...] = ()


def load(name: str) -> Workload:
    """Load the workload of that name."""
    return import_module(f"bench.workloads.{name}").WORKLOAD
