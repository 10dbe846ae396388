"""Mutants: seeded bugs, applied one at a time to the code, each of which a simulator has to notice.

    python -m tests.sim.mutants [NAME…]             run them and print a table; --suite group: those of broker groups
    python -m tests.sim.mutants --run NAME          one mutant in this process, seed after seed until a promise is broken

A mutant replaces a text in the source of one module while that is imported; no file is changed. A finding counts only
when the same seed without the mutant keeps that promise.
"""

import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests.sim.group.mutations import GROUP_MUTANTS
from tests.sim.kinds import kind_of
from tests.sim.mutations import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


class Suite(NamedTuple):
    """Mutants and the simulator that has to notice them.

    Attributes:
        drawing, simulation, run: modules, and the function of the second one, by name: a mutant is put in before they
            are imported.
        seconds_max: processor time in which a mutant has to be noticed.
    """

    mutants: tuple[Mutant, ...]
    drawing: str
    simulation: str
    run: str
    seconds_max: int


SUITES = {
    "node": Suite(MUTANTS, "tests.sim.drawing", "tests.sim.simulation", "simulate", 300),
    "group": Suite(GROUP_MUTANTS, "tests.sim.group.drawing", "tests.sim.group.simulation", "simulate_group", 120),
}


class MutantLoader(importlib.machinery.SourceFileLoader):
    """Loads a module with the mutant's text."""

    def __init__(self, mutant: Mutant, name: str, path: str) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str):  # type: ignore[no-untyped-def]
        source = self._mutant.applied(Path(self.path).read_text())
        return compile(source, self.path, "exec", dont_inherit=True)


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds the mutant's module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        file = str(self._mutant.path(ROOT))
        return importlib.util.spec_from_loader(fullname, MutantLoader(self._mutant, fullname, file))


def main() -> int:
    """Returns the number of mutants that were not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="Mutants to run (default: all).")
    parser.add_argument("--suite", choices=SUITES, help="Run the mutants of this simulator only (default: of all).")
    parser.add_argument("--run", metavar="NAME", help="Run one mutant, or a seed without one, in this process.")
    parser.add_argument("--seeds", type=int, default=1500, help="Run at most N seeds (default 1,500).")
    options = parser.parse_args()
    if options.run:
        return _run(options.run, SUITES[options.suite], json.loads(sys.stdin.read() or "{}"), options.seeds)
    chosen = [
        (name, mutant)
        for name, suite in SUITES.items()
        if options.suite in (None, name)
        for mutant in suite.mutants
        if not options.names or mutant.name in options.names
    ]
    sound: dict[str, dict[str, str]] = {name: {} for name in SUITES}
    print(f"{'mutant':58}{'seeds':>6}{'seconds':>9}  finding")
    missed = [mutant.name for name, mutant in chosen if not _caught(mutant, name, sound[name], options.seeds)]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught" + f"; missed: {', '.join(missed)}" * bool(missed))
    return len(missed)


def _caught(mutant: Mutant, suite: str, sound: dict[str, str], seeds: int) -> bool:
    """Whether it is caught.

    Args:
        sound: by seed, what breaks without a mutant; grows as seeds are looked at.
    """
    while True:
        number, took_s, seed, text = _in_process(mutant.name, suite, sound, seeds)
        if not text or sound.setdefault(seed, _in_process(seed, suite, {}, 1)[3]) != kind_of(text):
            break
    print(f"{mutant.name:58}{number:>6}{took_s:>9}  {text or 'MISSED'}"[:200], flush=True)
    return bool(text)


def _in_process(name: str, suite: str, sound: dict[str, str], seeds: int) -> list[str]:
    """(seeds, seconds of a core, seed, finding) of a process of its own, in the form of the references."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.mutants", "--suite", suite, "--run", name, "--seeds", str(seeds)],
        cwd=ROOT, env={**os.environ, "PENSTOCK_PURE": "1", "PYTHONHASHSEED": "0"}, capture_output=True, text=True,
        input=json.dumps(sound),
    )  # fmt: skip
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        sys.exit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(lines[-1])


def _run(name: str, suite: Suite, sound: dict[str, str], seeds: int) -> int:
    """Print the first finding that the sound code does not have; a number as the name runs that seed without a mutant."""
    mutant = next((each for each in suite.mutants if each.name == name), None)
    if mutant is not None:
        sys.meta_path.insert(0, MutantFinder(mutant))
    draw = importlib.import_module(suite.drawing).draw
    simulate = getattr(importlib.import_module(suite.simulation), suite.run)
    number = 0
    for seed in [int(name)] if mutant is None else range(seeds):
        number += 1
        broken = simulate(draw(seed)).broken
        if broken and sound.get(str(seed)) != kind_of(broken):
            found = broken if mutant else kind_of(broken)
            print(json.dumps([str(number), f"{time.process_time():.1f}", str(seed), found]))
            return 0
        if time.process_time() > suite.seconds_max:
            break
    print(json.dumps([str(number), f"{time.process_time():.1f}", "", ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
