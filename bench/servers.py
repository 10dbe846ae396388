"""CPU seconds and memory of the server processes, read from /proc."""

import os
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
GENERATOR = "generator"


@dataclass(frozen=True)
class ServerUse:
    """One process over the measured window."""

    name: str
    cpu_s: float  # user and system, all threads; the kernel counts in ticks of 10 ms
    rss_bytes: int  # as the window closes


@dataclass
class Sampler:
    """Reads all processes as the window opens and closes. Pass `on_window` to the run.

    An ended process counts as 0 from then on: the run reports the reason.
    """

    pids: dict[str, int]
    proc: Path = Path("/proc")
    _opened: dict[str, float] = field(default_factory=dict)
    _opened_at: float = 0.0
    uses: list[ServerUse] = field(default_factory=list)
    generator: ServerUse | None = None
    window_s: float = 0.0

    def on_window(self, opens: bool) -> None:
        cpu_s = {name: cpu_seconds(self.proc / str(pid)) for name, pid in self.pids.items()}
        cpu_s[GENERATOR] = _own_thread_s()
        if opens:
            self._opened, self._opened_at = cpu_s, time.monotonic()
            return
        self.window_s = time.monotonic() - self._opened_at
        spent = {name: max(0.0, used - self._opened.get(name, used)) for name, used in cpu_s.items()}
        self.generator = ServerUse(GENERATOR, spent.pop(GENERATOR), rss_bytes(self.proc / "self"))
        self.uses = [ServerUse(name, used, rss_bytes(self.proc / str(self.pids[name]))) for name, used in spent.items()]


def cpu_seconds(process: Path) -> float:
    """Return user and system time of a process so far; 0 when it has ended."""
    try:
        # The name before the last ")" may hold spaces and brackets; utime and stime are fields 14 and 15 of the line.
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_bytes(process: Path) -> int:
    """Return the resident memory of a process; 0 when it has ended."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)


def _own_thread_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_utime + usage.ru_stime
