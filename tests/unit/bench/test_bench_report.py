"""What people and programs are shown of a run."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("bench._load")

from bench._histogram import Histogram
from rich.console import Console

from bench.auto_creation import AutoCreation
from bench.generator import Loaded
from bench.outcome import Outcome
from bench.report import _rows, line, table
from bench.servers import ServerUse
from bench.settings import LoadSettings
from bench.suite import bars_as_dict, bars_table
from bench.workloads import NAMES, Bar, Workload, load


def outcome(**changes):
    counts = {
        "window_s": 2.0, "calls": 1000, "messages": 2000, "codes": {0: 2000}, "codes_outside": {0: 5}, "unsent": 0, "sent_total": 2005,
        "pulls": 0, "empty_pulls": 0, "pull_codes": {}, "deliveries": 0, "delivered_bytes": 0, "redelivered": 0,
        "deliveries_total": 0, "wrong_size": 0, "ack_codes": {}, "fault": None, **changes,
    }  # fmt: skip
    latency = Histogram()
    for number in range(1, 1001):
        latency.record(number * 1000)
    servers = [ServerUse("engine", 0.01, 50 << 20), ServerUse("producer_proxy", 0.03, 60 << 20)]
    loaded = Loaded(counts, latency, Histogram(), Histogram(), Histogram())
    return Outcome("single", LoadSettings(batch=2), "abc123", loaded, servers, ServerUse("generator", 0.5, 1 << 20))


def test_the_line_has_commit_durability_throughput_percentiles_and_cpu():
    said = line(outcome())
    for part in (
        "commit=abc123",
        "durability=memory",
        "calls/s=500",
        "messages/s=1,000",
        "p99.9=0.99",
        "max=1.000ms",
    ):
        assert part in said
    assert "<1ms=99.900%" in said and "cpu_s/M=20.00 (engine=5.00 producer_proxy=15.00)" in said


def test_the_json_form_has_the_same_figures_and_is_plain_data():
    data = json.loads(json.dumps(outcome().as_dict()))
    assert (data["calls_per_s"], data["messages_per_s"], data["settings"]["batch"]) == (500, 1000, 2)
    assert data["cpu_s_per_million_messages"] == pytest.approx({"engine": 5.0, "producer_proxy": 15.0})
    assert data["latency"]["p50"] == pytest.approx(0.5, rel=0.01)
    assert "pull_latency" not in data


def test_the_table_shows_each_server_and_what_is_wrong():
    console = Console(width=140, record=True, file=None, quiet=False)
    console.print(table(outcome(codes={0: 1990, 203: 10})))
    shown = console.export_text()
    assert "CPU of engine" in shown and "50 MiB" in shown and "10 answers with code 203" in shown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"codes": {0: 1, 104: 3}}, "3 answers with code 104"),
        ({"unsent": 7}, "7 planned messages"),
        ({"wrong_size": 2}, "2 deliveries with a body"),
        ({"messages": 0}, "no message was sent"),
    ],
)
def test_a_run_whose_figures_cannot_be_believed_says_why(changes, said):
    assert any(said in complaint for complaint in outcome(**changes).complaints)
    assert outcome().complaints == []


def test_bars_are_shown_as_met_or_missed():
    bars = (
        Bar("calls", lambda made: made.calls_per_s, least=400),
        Bar("cpu", lambda made: made.cpu_us_per_message("engine"), most=4),
    )
    workload = Workload("single", LoadSettings(), bars)
    assert [bar["met"] for bar in bars_as_dict(workload, outcome())] == [True, False]
    console = Console(width=160, record=True)
    console.print(bars_table([(workload, outcome())]))
    shown = console.export_text()
    assert "met" in shown and "missed" in shown and "≥ 400" in shown


@pytest.mark.parametrize(("bar", "wanted"), [({"least": 1_000_000}, "≥ 1,000,000"), ({"most": 30.5}, "≤ 30.5")])
def test_a_bar_is_written_out(bar, wanted):
    assert Bar("figure", lambda made: 0.0, **bar).wanted == wanted


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_says_its_question_its_settings_and_what_it_leaves_out(name):
    from importlib import import_module

    said = import_module(f"bench.workloads.{name}").__doc__
    assert "Question:" in said and "Settings:" in said and "Excluded:" in said
    workload = load(name)
    assert workload.name == name and workload.bars


def test_a_familys_auto_creation_is_shown_in_line_table_and_json():
    birth = AutoCreation(1_000, 2.0, {"engine": 50 << 20}, {"engine": (50 << 20) + 3_000_000})
    born = replace(outcome(), birth=birth)
    assert "topics=1,000 born_in=2.0s engine_rss=+3MB" in line(born)
    assert dict(_rows(born))["topics auto-created"] == "1,000 in 2.0 s, 500 per second"
    assert json.loads(json.dumps(born.as_dict()))["birth"]["seconds"] == 2.0
    workload = load("million_topics")
    assert [bar["met"] for bar in bars_as_dict(workload, born)] == [True, True]
