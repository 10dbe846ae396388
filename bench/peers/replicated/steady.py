"""A steady load by a driver, and what its lines tell: gaps without a stored message, counts, and who leads."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.errors import RunError
from bench.peers.driver import Driven, arguments
from bench.peers.processes import last_lines, spawn, stop
from bench.peers.replicated.workloads import STEADY
from bench.peers.workloads import Terms

STEP_S = 0.05


class Beat(NamedTuple):
    stored: int
    failed: int
    leadership: str  # as the driver tells it


class SteadyLoad:
    """The lines that a driver has written so far.

    Attributes:
        gaps_ms: times of 20 ms and more without a stored message, in the order of their ends.
    """

    def __init__(self) -> None:
        self.gaps_ms: list[float] = []
        self.beat = Beat(0, 0, "- 0")
        self.is_over = False

    def read(self, lines: Iterator[str]) -> None:
        """Follow a driver until it ends."""
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == "gap":
                self.gaps_ms.append(float(rest))
            elif word == "beat":
                stored, failed, leadership = rest.split(" ", 2)
                self.beat = Beat(int(stored), int(failed), leadership)
        self.is_over = True

    def wait(self, condition: Callable[[], bool], text: str, timeout_s: float) -> None:
        """Block until the condition holds.

        Raises:
            RunError: it did not in time, or the driver has ended.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self.is_over:
                raise RunError(f"the driver ended while this was awaited: {text}")
            if time.monotonic() > deadline:
                raise RunError(f"not within {timeout_s:g} s: {text} (last told: {' '.join(map(str, self.beat))})")
            time.sleep(STEP_S)

    def wait_stored(self, count: int, timeout_s: float) -> None:
        """Block until so many messages more are stored."""
        goal = self.beat.stored + count
        self.wait(lambda: self.beat.stored >= goal, f"{count:,} more messages are stored", timeout_s)


@contextmanager
def steady_load(driven: Driven, folder: Path) -> Iterator[SteadyLoad]:
    """Load the system at STEADY's rate during the block; what the client library complains of is in steady.err."""
    line = [*driven.command, *arguments(driven, STEADY, Terms(0, 0))]
    load = SteadyLoad()
    with (folder / "steady.err").open("w+") as complaints:
        process = spawn(line, stdout=subprocess.PIPE, stderr=complaints, text=True, env={**os.environ, **driven.env})
        assert process.stdout is not None
        reader = threading.Thread(target=load.read, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            yield load
        except RunError as fault:
            complaints.seek(0)
            raise RunError(f"{driven.name}: {fault}: {last_lines(complaints.read())}") from fault
        finally:
            stop(process)
            reader.join()
