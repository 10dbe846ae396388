"""Runs simulations: `python -m tests.sim --seeds 0:2000 [--shrink] [--minutes N] [--trace]`."""

import argparse
import logging
import sys
import time
from collections import Counter
from dataclasses import replace

from tests.sim.drawing import draw
from tests.sim.kinds import kind_of
from tests.sim.known import cause_of
from tests.sim.machine import OPERATIONS
from tests.sim.scenario import Scenario
from tests.sim.shrink import shrink
from tests.sim.simulation import Outcome, simulate


def main() -> int:
    """Run the seeds; returns the number of findings, at most 100."""
    options = _options()
    logging.disable(logging.WARNING)
    first, end = (int(number) for number in options.seeds.split(":"))
    began = time.monotonic()
    findings: list[Outcome] = []
    total, seeds = Counter[str](), 0
    for seed in range(first, end):
        if options.minutes and time.monotonic() - began > 60 * options.minutes:
            break
        outcome = simulate(_scenario(seed, options.only), options.trace)
        seeds += 1
        total.update(events=outcome.events, kept=outcome.kept, delivered=outcome.delivered)
        total.update({f"fault {name}": count for name, count in outcome.faults.items()})
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
    took_s = time.monotonic() - began
    _report(seeds, took_s, total, findings)
    missing = [name for name in OPERATIONS if not total[f"fault {name}"]] if seeds >= 1000 and not options.only else []
    if missing:
        print(f"no call of these operations has failed: {', '.join(missing)}")
    return min(len(findings) + len(missing), 100)


def _scenario(seed: int, only: str) -> Scenario:
    scenario = draw(seed)
    if only:
        kept = tuple(fault for fault in scenario.faults if fault.kind in only.split(","))
        return replace(scenario, faults=kept)
    return scenario


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", default="0:2000", help="Run the seeds FIRST to END-1 (default 0:2000).")
    parser.add_argument("--minutes", type=float, default=0, help="Stop after N minutes (default 0: no limit).")
    parser.add_argument("--shrink", action="store_true", help="Show the smallest scenario that still fails.")
    parser.add_argument("--tail", type=int, default=30, help="Events of the smallest scenario to show (default 30).")
    parser.add_argument(
        "--only", default="", help="Inject only these kinds of faults, separated by commas (default: all)."
    )
    parser.add_argument("--all", action="store_true", help="Count known findings, too (tests/sim/known.py).")
    parser.add_argument("--trace", action="store_true", help="Show every event.")
    parser.add_argument("--first", action="store_true", help="Stop at the first finding.")
    return parser.parse_args()


def _show_smallest(outcome: Outcome, tail: int) -> None:
    smallest = shrink(outcome, simulate)
    print(smallest.scenario.describe())
    print(f"  → {smallest.broken}")
    for line in [] if not tail else simulate(smallest.scenario, keep_lines=True).lines[-tail:]:
        print(f"    {line[:140]}")


def _report(seeds: int, took_s: float, total: Counter[str], findings: list[Outcome]) -> None:
    print(
        f"{seeds} seeds in {took_s:.1f} s: {total['events']} steps ({total['events'] / max(took_s, 0.01):.0f}/s), "
        f"{total['kept']} messages kept, {total['delivered']} deliveries, {len(findings)} findings"
    )
    faults = {name.removeprefix("fault "): count for name, count in sorted(total.items()) if name.startswith("fault ")}
    print("faults: " + ", ".join(f"{name} {count}" for name, count in faults.items()))
    for name, count in sorted(total.items()):
        if name.startswith("known "):
            print(f"{count:5d}  {name}")
    for text, count in Counter(kind_of(each.broken) for each in findings).most_common():
        print(f"{count:5d}  {text}")


if __name__ == "__main__":
    sys.exit(main())
