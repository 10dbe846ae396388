"""The mutants: each of their texts is in the code, and a sample is caught."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.mutations import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutants_text_is_in_its_module(mutant):
    changed = mutant.applied(mutant.path(ROOT).read_text())
    compile(changed, mutant.module, "exec")


def test_there_are_enough_of_them_and_their_names_differ():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_a_seeded_bug_is_caught():
    name = "an extension ends the lease"
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.mutants", name], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert "1 of 1 caught" in done.stdout, done.stdout + done.stderr
