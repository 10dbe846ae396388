"""`python -m bench.alone` with real processes, at a tiny scale: the output is checked, not the figures."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("bench._load", reason="the load generator needs a C compiler")


def figures(case):
    line = [sys.executable, "-m", "bench.alone", case, "--scale", "0.0005", "--seconds", "0.4", "-o", "json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return {each["text"]: each["value"] for each in json.loads(done.stdout)["figures"]}


def test_an_engine_that_is_ended_is_timed_to_its_next_stored_message():
    found = figures("restart")
    assert found.pop("log") > 0
    assert len(found) == 2 and all(0.1 < seconds < 60 for seconds in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("case", ["million", "flat", "cold", "fsync"])
def test_every_case_runs(case):
    assert all(value >= 0 for value in figures(case).values())
