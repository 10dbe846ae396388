"""Time of a run: its five marks, the windows between them, and the figures of each second."""

from collections.abc import Iterable
from typing import NamedTuple

from bench.fallback.load import TimedCall


class OutageMarks(NamedTuple):
    """The run's marks on the monotonic clock."""

    began: float
    stopped: float
    resumed: float
    drained: float
    ended: float

    def as_seconds(self) -> dict[str, float]:
        """The marks in seconds since the beginning."""
        return {name: round(at - self.began, 2) for name, at in self._asdict().items()}

    def windows(self, warm_s: float) -> dict[str, tuple[float, float]]:
        """(start, end) of each part; the first seconds of the run belong to no part."""
        return {
            "before": (self.began + warm_s, self.stopped), "outage": (self.stopped, self.resumed),
            "drain": (self.resumed, self.drained), "after": (self.drained, self.ended),
        }  # fmt: skip


def p99_ms(calls: Iterable[TimedCall], start_s: float, end_s: float) -> float | None:
    """p99 in ms of the calls planned in this window; None without calls."""
    return _p99_ms([call.took_s for call in calls if start_s <= call.planned_s < end_s])


def count_in(calls: Iterable[TimedCall], start_s: float, end_s: float) -> int:
    """Number of calls planned in this window."""
    return sum(start_s <= call.planned_s < end_s for call in calls)


def by_second(calls: Iterable[TimedCall], marks: OutageMarks) -> list[tuple[int, float | None]]:
    """(second of the run, p99 in ms) of each second in which calls were planned."""
    took: dict[int, list[float]] = {}
    for call in calls:
        took.setdefault(int(call.planned_s - marks.began), []).append(call.took_s)
    return [(second, _p99_ms(took[second])) for second in sorted(took)]


def _p99_ms(took_s: list[float]) -> float | None:
    ranked = sorted(took_s)
    return round(1000 * ranked[int(0.99 * len(ranked))], 2) if ranked else None
