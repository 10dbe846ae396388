"""`python -m bench.console` with real processes, at a tiny scale: the output is checked, not the figures."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("bench._load", reason="the load generator needs a C compiler")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["pages", "open", "changes"])
def test_every_case_runs(case):
    line = [sys.executable, "-m", "bench.console", case, "--scale", "0.01", "--seconds", "2", "-o", "json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert len(figures) > 5 and all(each["value"] >= 0 for each in figures if "cost" not in each["text"])
