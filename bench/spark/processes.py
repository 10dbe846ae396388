"""Processes of a job of Spark: the driver, its JVM and its Python workers, without the systems that run beside them."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

SYSTEMS = (b"\0-m\0penstock\0", b"\0kafka.Kafka\0")
"""In the command lines of `penstock up` and of a Kafka broker."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def own_processes() -> list[int]:
    """This process and those below it, without the systems and what they run."""
    found, waiting = [], [os.getpid()]
    while waiting:
        pid = waiting.pop()
        try:
            if any(each in Path(f"/proc/{pid}/cmdline").read_bytes() for each in SYSTEMS):
                continue
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:  # it has just ended
            continue
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds of processes so far, user and system, with those of children that have ended."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS_PER_S


def cpu_by_role(systems: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds so far of each process of a system, and of Spark: its workers' ends up with their parents' when they end."""
    return {**{name: cpu_s([pid]) for name, pid in systems.items()}, "spark": cpu_s(own_processes())}


def pss_bytes(pids: Iterable[int]) -> int:
    return sum(map(_pss, pids))


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)
