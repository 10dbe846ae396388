"""The page of a run with peers, from a run that was made up."""

import json
from dataclasses import asdict

import pytest

from bench.peers.__main__ import as_dict
from bench.peers.page import REPLICATED, main, write
from bench.peers.penstock import NATIVE
from bench.peers.workloads import Terms
from tests.unit.bench.test_peers_report import run

pytest.importorskip("matplotlib")


def test_a_page_has_a_plot_and_a_table_for_each_workload_and_the_ratios(tmp_path):
    runs = [run(NATIVE, 80_000, 0.8), run("kafka", 10_000, 0.5), run("kafka", 9_999, 0.5, workload="open_10k")]
    made = as_dict(runs, ["single, kafka: 3 calls failed"], Terms(20.0, 30.0))
    (tmp_path / "run.json").write_text(json.dumps(made))
    assert main([str(tmp_path / "run.json"), str(tmp_path)]) == 0
    page = (tmp_path / "peers.md").read_text()
    assert "| kafka | 10,000 | 0.10 | 0.50 | 2.00 | 3.00 | 4.00 | 98.77% | 50.00 | 64 |" in page
    assert "| single | penstock | kafka | messages/s | 8.00 × | ≥ 4 × | met |" in page
    assert "3 calls failed" in page
    assert asdict(Terms(20.0, 30.0))["warmup_s"] == 30.0 and "30 s of warm-up" in page
    for name in ("single", "open_10k"):
        assert (tmp_path / f"peers-{name}.svg").read_text().startswith("<?xml")


def test_the_same_run_makes_the_same_plot(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(as_dict([run(NATIVE, 80_000, 0.8)], [], Terms(1.0, 1.0))))
    first = main([str(tmp_path / "run.json"), str(tmp_path)]), (tmp_path / "peers-single.svg").read_bytes()
    assert (main([str(tmp_path / "run.json"), str(tmp_path)]), (tmp_path / "peers-single.svg").read_bytes()) == first


def test_without_a_run_it_says_how_it_is_called(capsys):
    assert main([]) == 2
    assert "python -m bench.peers.page RUN.json" in capsys.readouterr().err


def test_the_part_on_replicas_stays_where_a_run_is_shown_anew(tmp_path):
    write(tmp_path, own="# first\n")
    write(tmp_path, replicated=f"{REPLICATED}kept\n")
    write(tmp_path, own="# second\n")
    assert (tmp_path / "peers.md").read_text() == f"# second\n{REPLICATED}kept\n"
