"""The mutants: each of their texts is in the code, and a sample is caught."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.group.mutations import GROUP_MUTANTS
from tests.sim.mutations import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", (*MUTANTS, *GROUP_MUTANTS), ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutants_text_is_in_its_module(mutant):
    changed = mutant.applied(mutant.path(ROOT).read_text())
    compile(changed, mutant.module, "exec")


def test_there_are_enough_of_them_and_their_names_differ():
    for table in (MUTANTS, GROUP_MUTANTS):
        assert len({mutant.name for mutant in table}) == len(table) >= 30


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("node", "an extension ends the lease"),
        ("group", "confirms what only the master has"),
        ("group", "a lane sends again as if for the first time"),
        ("group", "a cut log is not cut"),
        ("group", "a slave shows what is not confirmed"),
    ],
)
def test_a_seeded_bug_is_caught(suite, name):
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.mutants", "--suite", suite, name], cwd=ROOT, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert "1 of 1 caught" in done.stdout, done.stdout + done.stderr
