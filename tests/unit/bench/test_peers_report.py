"""Tables and ratios of a run with peers, from figures that were made up."""

import io
import json

import pytest
from rich.console import Console

from bench.errors import InstanceError
from bench.peers import __main__ as program
from bench.peers.bars import BARS, as_dicts, ratios
from bench.peers.figures import Figures
from bench.peers.penstock import JAVA, NATIVE
from bench.peers.report import figures_table, ratios_table
from bench.peers.systems import SYSTEMS
from bench.peers.workloads import WORKLOADS, Terms
from bench.servers import ServerUse

LATENCY = {"p50": 0.1, "p99": 0.5, "p99_9": 2.0, "p99_99": 3.0, "max_ms": 4.0, "share_under_1_ms": 0.98765}


def run(system, messages, cpu_s, workload="single", **latency):
    uses = [ServerUse("server", cpu_s, 64 << 20)]
    return Figures(system, workload, messages, messages, 1.0, {**LATENCY, **latency}, LATENCY, uses, 0.5)


def shown(table):
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_ratios_are_ours_by_the_peers_and_only_of_what_ran():
    runs = [run(NATIVE, 80_000, 0.8), run("kafka", 10_000, 0.5)]
    found = {bar.text: (ratio, bar.met(ratio)) for bar, ratio in ratios(runs)}
    assert found == {"messages/s": (8, True), "CPU per message": (pytest.approx(0.2), True)}
    assert {row["peer"] for row in as_dicts(runs)} == {"kafka"}


def test_a_missed_ratio_is_shown_as_missed():
    text = shown(ratios_table([run(NATIVE, 20_000, 0.8), run("kafka", 10_000, 0.4)]))
    assert text.count("missed") == 2 and "2.00 ×" in text and "≥ 4 ×" in text and "≤ 1/3" in text


def test_a_peer_that_did_nothing_is_no_division_by_zero():
    assert list(ratios([run(NATIVE, 20_000, 0.8), run("kafka", 0, 0.0)])) == []


def test_many_topics_are_compared_with_few_of_the_same_system():
    runs = [run(NATIVE, 80_000, 0.8), run(NATIVE, 79_000, 0.8, workload="single_256")]
    assert [(bar.wanted, ratio) for bar, ratio in ratios(runs)] == [("≥ 0.95 ×", pytest.approx(79 / 80))]


def test_every_promise_is_between_systems_and_workloads_that_there_are():
    systems = {name for forms in SYSTEMS.values() for name in forms}
    workloads = {workload.name for workload in WORKLOADS}
    assert all({bar.ours, bar.peer} <= systems and bar.workload in workloads for bar in BARS)
    assert all(bar.peer_workload in {"", *workloads} for bar in BARS)
    assert all((bar.least is None) != (bar.most is None) for bar in BARS)


def test_the_table_marks_figures_that_should_not_be_believed():
    doubtful = run("nats", 30_000, 0.6)
    doubtful.complaints.append("3 calls failed: timeout")
    text = shown(figures_table([run(JAVA, 1, 0.0), doubtful], Terms(5, 30)))
    assert "nats (!)" in text and "20.00" in text and "98.76%" in text and "30 s of warm-up" in text


def test_a_peer_that_does_not_start_costs_its_own_rows_only(monkeypatch, capsys):
    class Up:
        def __enter__(self):
            return self

        def __exit__(self, *fault):
            pass

        def answers(self, workload):
            return workload.name != "batched"

        def run(self, workload, terms):
            return run("nats", 30_000, 0.6, workload.name)

    def broken():
        raise InstanceError("java is not installed")

    monkeypatch.setattr(program, "SYSTEMS", {"kafka": {"kafka": broken}, "nats": {"nats": Up}})
    monkeypatch.setattr(program.signal, "signal", lambda *of: None)
    assert program.main(["--only", "kafka,nats", "--seconds", "1", "-o", "json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [row["workload"] for row in said["runs"]] == [each.name for each in WORKLOADS if each.name != "batched"]
    assert said["faults"] == ["kafka: java is not installed"]


def test_names_that_there_are_not_are_refused_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit):
        program.main(["--only", "pulsar"])
    assert "nothing is named pulsar" in capsys.readouterr().err
