"""Seeds of a test run: other ones for each commit, so that what `make long` would find is found within days."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEEDS = 300


def check_seeds(module: str) -> None:
    """Run a simulator's module over the seeds of this commit, on all processors. Raises AssertionError with its output."""
    counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    first = SEEDS * int(counted.stdout or 0)  # 0 outside of a repository
    count = os.cpu_count() or 1
    bounds = [first + SEEDS * number // count for number in range(count + 1)]
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", module, "--seeds", f"{begin}:{end}"], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for begin, end in pairwise(bounds)
    ]  # fmt: skip
    shown = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0] * count, "\n".join(shown)
