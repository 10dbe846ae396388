"""Strikes a running broker group with every kind of fault, by a seed: `python -m tests.fault.nemesis --minutes 30`.

Each fault strikes once, in an order by chance; then again, until the time is over. The group has to be whole and to serve
between two faults. At the end all edges of its state machine must have been taken, the verdict on the load must be clean,
and the brokers' logs must be equal. Run by `unshare --mount`, so that no mount outlives it. `--only WORD` for some faults.
"""

import argparse
import logging
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.fault.cuts import CASES
from tests.fault.nemesis import edges
from tests.fault.nemesis.faults import CUT, Fault, cut_name, faults
from tests.fault.nemesis.judgement import failed, judge, wait_equal_logs
from tests.fault.nemesis.site import Site


class Struck(NamedTuple):
    """One fault of the run. `failed`: (messages, delayed ones) that were not acknowledged."""

    at_s: float
    name: str
    seconds: float
    gap_s: float
    failed: tuple[int, int]
    effect: str

    def row(self) -> str:
        lost, delayed = self.failed
        gap = f"{self.gap_s * 1000:6.0f} ms"
        return f"{self.at_s:7.1f} {self.seconds:6.1f} {gap} {lost:6} {delayed:4}  {self.name}: {self.effect}"


HEADER = f"{'at s':>7} {'s':>6} {'gap':>9} {'failed':>6} {'del.':>4}  fault: effect"


def order(chance: random.Random, brokers: int, word: str) -> Iterator[tuple[bool, Fault]]:
    """Rounds of all faults; (whether it is of the first round, fault). The first round has one cut of each effect."""
    is_first = True
    while True:
        kinds = [each for each in faults(brokers) if word in each.name]
        chance.shuffle(kinds)
        if is_first and not word:
            few = {each.effect: each for each in chance.sample(CASES, len(CASES))}
            kinds = [
                each for each in kinds if not each.name.startswith(CUT) or each.name in map(cut_name, few.values())
            ]
        for each in kinds:
            yield is_first, each
        is_first = False


def strike(site: Site, fault: Fault, began_s: float) -> Struck:
    """One fault, until all is well again. Raises AssertionError: it had no effect, or too much of it."""
    site.hold(0.3, 1.5)
    site.recover()  # what the fault before has left behind may show only now
    since_s, first = time.monotonic(), len(site.load.refused)
    effect = fault.act(site)
    recovered = site.recover()
    gap_s = site.load.gap_s(since_s, time.monotonic())
    struck = Struck(
        since_s - began_s, fault.name, time.monotonic() - since_s, gap_s, failed(site, first), f"{effect}; {recovered}"
    )
    print(struck.row(), flush=True)
    return struck


def faults_of(struck: list[Struck], brokers: int) -> list[str]:
    """Rows that show more than the fault allows."""
    allowed = {each.name: each.gap_s_max for each in faults(brokers)}
    return [each.row() for each in struck if (most := allowed[each.name]) and (each.gap_s > most or each.failed[0] > 0)]


def run(options: argparse.Namespace, folder: Path) -> list[str]:
    """Return the complaints."""
    struck: list[Struck] = []
    with Site(folder, options.replicas, options.seed) as site:
        began_s = time.monotonic()
        print(HEADER)
        try:
            for is_first, fault in order(random.Random(options.seed), options.replicas, options.only):
                if time.monotonic() > began_s + options.minutes * 60 and not is_first:
                    break
                struck.append(strike(site, fault, began_s))
            seconds = time.monotonic() - began_s
            verdict = judge(site)
            print(
                f"{len(struck)} faults in {seconds:.0f} s, {verdict.acknowledged / seconds:.0f} acknowledged per second"
            )
            print(verdict.told())
            print(f"the logs of {len(site.brokers)} brokers are equal: {wait_equal_logs(site)} bytes")
            site.note_changes()
            taken, missing = edges.count(site.changes)
        except BaseException:
            print(site.group.logs())
            raise
    for name, count in taken.most_common():
        print(f"{count:6}  {name}")
    print(f"{missing:6}  changes that the history did not keep")
    complaints = [f"more than the fault allows: {row}" for row in faults_of(struck, options.replicas)]
    complaints += [f"{name}: {found}" for name, found in verdict.broken().items()]
    if not options.only:
        complaints += [f"not taken: {name}" for name in sorted(edges.wanted(options.replicas) - taken.keys())]
    return complaints


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="every fault strikes once, however long that takes")
    parser.add_argument("--seed", default=str(time.time_ns()))
    parser.add_argument("--replicas", type=int, choices=(2, 3), default=2)
    parser.add_argument("--only", default="", help="faults whose name contains this word")
    options = parser.parse_args()
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # ZooKeeper's loss is a part of the run
    print(f"seed {options.seed}, {options.replicas} replicas", flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-nemesis-", ignore_cleanup_errors=True) as folder:
        complaints = run(options, Path(folder))
    print("\n".join(complaints) or "clean")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
