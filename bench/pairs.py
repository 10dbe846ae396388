"""CPU per message of two source trees, in alternating runs: `python -m bench.pairs BEFORE AFTER [--workload NAME]`.

BEFORE and AFTER are trees with a `.venv` of their own and built native modules (`make native` in each). Every round runs
the workload once in each tree, in the order before, after, after, before, so that a machine that becomes slower during
the run affects both alike. CPU is that of producer proxy and engine per message, as `single_memory` has it. A round's
difference is of two neighbouring runs; the figure to quote is the median of them, with the rounds' spread beside it.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from bench.errors import BenchError, RunError
from bench.figures import Figure, table
from bench.workloads import NAMES

COUNTED = ("producer_proxy", "engine")
MORE_MAX = 2.0
OVERTIME_S = 120.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trees", nargs=2, type=Path, metavar="TREE", help="before, after")
    parser.add_argument("--workload", choices=NAMES, default="single_memory")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of runs (default 10)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each window (default 5)")
    options = parser.parse_args(arguments)
    try:
        pairs = [*run_pairs(options.trees, options.workload, options.rounds, options.seconds)]
    except BenchError as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return 1
    Console(width=None if sys.stdout.isatty() else 140).print(table(f"pairs, {options.workload}", figures(pairs)))
    return 0


def run_pairs(trees: list[Path], workload: str, rounds: int, seconds: float) -> Iterator[tuple[float, float]]:
    """CPU µs per message before and after, per round."""
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        cpu_us = {index: cpu_us_of(trees[index], workload, seconds) for index in order}
        print(f"round {number + 1}: before {cpu_us[0]:.3f}, after {cpu_us[1]:.3f} µs", file=sys.stderr, flush=True)
        yield cpu_us[0], cpu_us[1]


def cpu_us_of(tree: Path, workload: str, seconds: float) -> float:
    """One run by the tree's own `penstock bench`.

    Raises:
        RunError: it failed, or its figures are invalid.
    """
    python = tree / ".venv" / "bin" / "python"
    line = [str(python), "-P", "-m", "penstock", "bench", workload, "--seconds", str(seconds), "-o", "json"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=seconds + OVERTIME_S, cwd=tree)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise RunError(f"{tree}: {fault}") from fault
    if done.returncode:
        raise RunError(f"{tree}: {(done.stderr.strip() or done.stdout.strip())[-300:]}")
    used = json.loads(done.stdout)["cpu_s_per_million_messages"]
    return sum(used[name] for name in COUNTED)


def figures(pairs: list[tuple[float, float]]) -> list[Figure]:
    more = sorted((after / before - 1) * 100 for before, after in pairs)
    return [
        Figure("before, median", statistics.median(before for before, _ in pairs), "µs/message"),
        Figure("after, median", statistics.median(after for _, after in pairs), "µs/message"),
        Figure("more after than before, median of the rounds", round(statistics.median(more), 3), "%", most=MORE_MAX),
        Figure("the same, least round", more[0], "%"),
        Figure("the same, greatest round", more[-1], "%"),
    ]


if __name__ == "__main__":
    sys.exit(main())
