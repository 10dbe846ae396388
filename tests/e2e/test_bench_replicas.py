"""`python -m bench.replicas` with real processes, at a tiny scale: the output is checked, not the figures."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("bench._load", reason="the load generator needs a C compiler")


def figures(case):
    line = [sys.executable, "-m", "bench.replicas", case, "--scale", "0.02", "--seconds", "0.8", "-o", "json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return {each["text"]: each["value"] for each in json.loads(done.stdout)["figures"]}


def test_a_start_with_replicas_is_timed_and_weighed():
    found = figures("ready")
    assert 0 < found["ready, slowest"] <= found["both brokers in sync, slowest"] < 60
    assert found["memory of all processes, largest"] > 100


def test_a_slave_that_is_behind_is_watched_until_it_is_in_sync():
    found = figures("behind")
    assert found["behind"] > 20 and found["catch-up rate"] > 0
    assert found["until it has what was missing"] <= found["until it is in sync"] < 60


@pytest.mark.slow
@pytest.mark.parametrize("case", ["calls", "paced", "catch_up"])
def test_every_case_runs(case):
    found = figures(case)
    assert len(found) > 5
    assert all(value >= 0 for text, value in found.items() if "CPU of replication" not in text)
