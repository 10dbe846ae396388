"""The way of a slave's log to the end of its master's, watched from outside."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from bench.errors import RunError
from bench.replicas.group import MeasuredGroup
from bench.servers import cpu_seconds

STEP_S = 0.1
TIMEOUT_S = 600.0


@dataclass
class Chase:
    """
    Attributes:
        points: (seconds since the start, end of the slave's log), from the first one that is known.
        caught_up_s: when the slave's log first reached `goal`.
        in_sync_s: when the group's record first named both brokers as in sync.
        cpu_s: of master and slave over the whole time.
    """

    goal: int
    points: list[tuple[float, int]] = field(default_factory=list)
    caught_up_s: float = 0.0
    in_sync_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)

    def note(self, at_s: float, end: int | None, is_in_sync: bool) -> None:
        if end is not None:
            self.points.append((at_s, end))
            if end >= self.goal and not self.caught_up_s:
                self.caught_up_s = at_s
        if is_in_sync and self.caught_up_s and not self.in_sync_s:
            self.in_sync_s = at_s

    @property
    def is_over(self) -> bool:
        return bool(self.in_sync_s)

    @property
    def behind_bytes(self) -> int:
        """The gap at the first known end."""
        return self.goal - self.points[0][1]

    @property
    def mb_per_s(self) -> float:
        """From the last moment without progress to the goal."""
        still = self.points[0]
        for before, after in pairwise(self.points):
            if after[1] > before[1]:
                still = before
                break
        seconds = self.caught_up_s - still[0]
        return (self.goal - still[1]) / seconds / 1e6 if seconds > 0 else 0.0

    def cpu_s_per_gb(self, role: str) -> float:
        return self.cpu_s[role] / max(1, self.behind_bytes) * 1e9


@contextmanager
def chase(group: MeasuredGroup, slave: str, goal: int, timeout_s: float = TIMEOUT_S) -> Iterator[Chase]:
    """Watch the slave in a thread from now on; leaving the block waits until it is in sync.

    Raises:
        RunError: it was not in time.
    """
    made = Chase(goal)
    left = threading.Event()
    processes = {role: Path(f"/proc/{pid}") for role, pid in group.pids.items() if role in ("master", "slave")}
    before_s = {role: cpu_seconds(process) for role, process in processes.items()}
    watcher = threading.Thread(target=_watch, args=(group, slave, made, left, timeout_s), daemon=True)
    watcher.start()
    try:
        yield made
        watcher.join()
    finally:
        left.set()
        watcher.join()
    made.cpu_s = {role: cpu_seconds(process) - before_s[role] for role, process in processes.items()}
    if not made.is_over:
        raise RunError(f"the slave was not in sync within {timeout_s:g} s")


def _watch(group: MeasuredGroup, slave: str, made: Chase, left: threading.Event, timeout_s: float) -> None:
    began = time.monotonic()
    while not made.is_over and not left.is_set() and time.monotonic() - began < timeout_s:
        end, is_in_sync = group.log_end(slave), group.is_in_sync
        made.note(time.monotonic() - began, end, is_in_sync)
        time.sleep(STEP_S)
