"""Runs simulations of a group: `python -m tests.sim.group --seeds 0:2000 [--shrink] [--minutes N] [--trace]`."""

import argparse
import logging
import sys
import time
from collections import Counter

from tests.sim.group.drawing import draw
from tests.sim.group.known import cause_of
from tests.sim.group.simulation import GroupOutcome, simulate_group
from tests.sim.kinds import kind_of
from tests.sim.shrink import shrink


def main() -> int:
    """Run the seeds; returns the number of findings, at most 100."""
    options = _options()
    logging.disable(logging.WARNING)
    first, end = (int(number) for number in options.seeds.split(":"))
    began = time.monotonic()
    findings: list[GroupOutcome] = []
    total, seeds = Counter[str](), 0
    for seed in range(first, end):
        if options.minutes and time.monotonic() - began > 60 * options.minutes:
            break
        outcome = simulate_group(draw(seed), options.trace)
        seeds += 1
        total.update(events=outcome.events, kept=outcome.kept, delivered=outcome.delivered, epochs=outcome.epochs)
        total.update({f"fault {name}": count for name, count in outcome.faults.items()})
        total.update({f"edge {name}": count for name, count in outcome.edges.items()})
        cause = cause_of(outcome.scenario, outcome.broken) if outcome.broken else ""
        if cause and not options.all:
            total[f"known {cause}"] += 1
        elif outcome.broken:
            findings.append(outcome)
            print(f"seed {seed}: {outcome.broken}", flush=True)
            if options.shrink:
                _show_smallest(outcome, options.tail)
            if options.first:
                break
        if options.trace:
            print("\n".join(outcome.lines))
    _report(seeds, time.monotonic() - began, total, findings)
    return min(len(findings), 100)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.group", description=__doc__)
    parser.add_argument("--seeds", default="0:2000", help="Run the seeds FIRST to END-1 (default 0:2000).")
    parser.add_argument("--minutes", type=float, default=0, help="Stop after N minutes (default 0: no limit).")
    parser.add_argument("--shrink", action="store_true", help="Show the smallest scenario that still fails.")
    parser.add_argument("--tail", type=int, default=40, help="Events of the smallest scenario to show (default 40).")
    parser.add_argument("--all", action="store_true", help="Count known findings, too (tests/sim/group/known.py).")
    parser.add_argument("--trace", action="store_true", help="Show every event.")
    parser.add_argument("--first", action="store_true", help="Stop at the first finding.")
    return parser.parse_args()


def _show_smallest(outcome: GroupOutcome, tail: int) -> None:
    smallest = shrink(outcome, simulate_group)
    print(smallest.scenario.describe())
    print(f"  → {smallest.broken}")
    for line in [] if not tail else simulate_group(smallest.scenario, keep_lines=True).lines[-tail:]:
        print(f"    {line[:140]}")


def _report(seeds: int, took_s: float, total: Counter[str], findings: list[GroupOutcome]) -> None:
    print(
        f"{seeds} seeds in {took_s:.1f} s: {total['events']} steps, {total['kept']} messages kept, "
        f"{total['delivered']} deliveries, {total['epochs']} epochs that confirmed something, {len(findings)} findings"
    )
    for kind in ("fault", "edge", "known"):
        found = {name.partition(" ")[2]: count for name, count in sorted(total.items()) if name.startswith(f"{kind} ")}
        print(f"{kind}s: " + ", ".join(f"{name} {count}" for name, count in found.items()))
    for text, count in Counter(kind_of(each.broken) for each in findings).most_common():
        print(f"{count:5d}  {text}")


if __name__ == "__main__":
    sys.exit(main())
