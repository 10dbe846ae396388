"""Two source trees in alternating runs: whose turn it is, what is compared, and what ends the comparison."""

import sys

import pytest

from bench import pairs
from bench.errors import RunError


def test_the_tree_that_runs_first_changes_with_each_round(monkeypatch, tmp_path):
    asked = []

    def cpu_us_of(tree, workload, seconds):
        asked.append(tree.name)
        return {"old": 10.0, "new": 10.1}[tree.name]

    monkeypatch.setattr(pairs, "cpu_us_of", cpu_us_of)
    found = [*pairs.run_pairs([tmp_path / "old", tmp_path / "new"], "single_memory", 3, 1.0)]
    assert asked == ["old", "new", "new", "old", "old", "new"]
    assert found == [(10.0, 10.1)] * 3


def test_the_figure_is_the_median_of_the_rounds_and_not_that_of_an_odd_one():
    found = {each.text: each for each in pairs.figures([(10.0, 10.1), (20.0, 20.2), (10.0, 14.0)])}
    more = found["more after than before, median of the rounds"]
    assert more.value == pytest.approx(1.0) and more.met
    assert found["the same, greatest round"].value == pytest.approx(40.0)
    assert not [*pairs.figures([(10.0, 10.3)])][2].met


def tree_that(tmp_path, says):
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\n{says}\n")
    python.chmod(0o755)
    return tmp_path


def test_a_trees_cpu_is_that_of_proxy_and_engine_by_its_own_program(tmp_path):
    used = {"producer_proxy": 9.0, "engine": 3.5, "consumer_proxy": 1.0}
    tree = tree_that(tmp_path, f"import json; print(json.dumps({{'cpu_s_per_million_messages': {used}}}))")
    assert pairs.cpu_us_of(tree, "single_memory", 1.0) == 12.5


def test_a_tree_that_cannot_be_measured_is_named(tmp_path):
    tree = tree_that(tmp_path, "raise SystemExit('no generator here')")
    with pytest.raises(RunError, match="no generator here"):
        pairs.cpu_us_of(tree, "single_memory", 1.0)
    with pytest.raises(RunError, match="nowhere"):
        pairs.cpu_us_of(tmp_path / "nowhere", "single_memory", 1.0)
