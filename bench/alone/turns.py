"""Interleaved loads: the machine's other work affects all compared loads alike."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.errors import RunError
from bench.generator import STORED, LoadTarget, run_load
from bench.measure import on_one_core
from bench.settings import LoadSettings

ROUNDS = 4
WARMUP_S = 0.5


@dataclass
class Total:
    """The sums of all rounds of one load."""

    calls: int = 0
    seconds: float = 0.0

    @property
    def calls_per_s(self) -> float:
        return self.calls / self.seconds


def in_turns(loads: Sequence[tuple[LoadSettings, LoadTarget]]) -> list[Total]:
    """Run each load for a part of its seconds, ROUNDS times.

    Raises:
        RunError: a message was refused.
    """
    totals = [Total() for _ in loads]
    for _ in range(ROUNDS):
        for total, (settings, target) in zip(totals, loads, strict=True):
            part = replace(settings, seconds=settings.seconds / ROUNDS, warmup_s=WARMUP_S)
            with on_one_core():
                counts = run_load(part, target).counts
            if refused := {code for code in counts["codes"] if code not in STORED}:
                raise RunError(f"{settings.topics:,} topics: answers with codes {sorted(refused)}")
            total.calls += counts["calls"]
            total.seconds += counts["window_s"]
    return totals
