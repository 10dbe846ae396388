"""Figures of a group with replicas: ratios, the CPU of replication, and a slave's way, from made-up values."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from bench.errors import RunError
from bench.figures import table
from bench.generator import LoadTarget
from bench.replicas import behind, calls, group, paced
from bench.replicas.following import Chase, chase
from bench.settings import LoadSettings
from common.cluster.group_record import GroupRecord, GroupState

TARGET = LoadTarget(("127.0.0.1", 1), ("127.0.0.1", 2), "app", "key", "secret")
MB = 1_000_000


def variant(messages, cpu_s, rss_mb=100):
    made = calls.Variant(LoadSettings(), TARGET, {}, messages=messages, seconds=10.0, cpu_s=cpu_s)
    made.rss_bytes = {name: [(rss_mb - 5) * MB, (rss_mb + 5) * MB] for name in cpu_s}
    return made


def by_text(figures):
    return {each.text.partition(": ")[2]: each for each in figures}


def test_replication_costs_what_the_master_takes_more_than_a_lone_engine_over_tcp():
    lone = [variant(1_000_000, {"engine": 2.0}), variant(800_000, {"engine": 3.2})]
    both = variant(500_000, {"producer_proxy": 5.0, "master": 4.0, "slave": 3.0})
    found = by_text(calls.figures("single", [*lone, both], 1, 0.55, 5.0))
    assert found["with a slave, of a lone engine's"].value == pytest.approx(0.5)
    assert not found["with a slave, of a lone engine's"].met
    assert found["the same over TCP"].value == pytest.approx(0.625)
    assert (
        found["CPU of replication, master"].value == pytest.approx(8.0 - 4.0)
        and found["CPU of replication, master"].met
    )
    assert found["CPU of replication, slave"].value == pytest.approx(6.0) and not found["CPU of replication, slave"].met
    assert found["CPU of the producer proxy"].value == pytest.approx(10.0)


def test_a_slave_may_take_as_much_memory_as_its_master():
    lone = variant(1, {"engine": 1.0})
    both = variant(1, {"producer_proxy": 1.0, "master": 1.0, "slave": 1.0})
    assert by_text(calls.figures("single", [lone, lone, both], 1, 0.5, 5.0))["RSS of the slave"].met
    both.rss_bytes["slave"][0] += 2 * MB
    assert not by_text(calls.figures("single", [lone, lone, both], 1, 0.5, 5.0))["RSS of the slave"].met


def test_a_variant_adds_up_its_rounds_and_a_refusal_ends_them(monkeypatch):
    codes = [{0: 30}]

    def run_load(settings, target, on_window):
        on_window(True)
        on_window(False)
        return SimpleNamespace(counts={"messages": 30 * settings.batch, "window_s": 2.5, "codes": codes[0]})

    monkeypatch.setattr(calls, "run_load", run_load)
    made = calls.Variant(LoadSettings(), TARGET, {"engine": 1}, is_apart=False)
    made.run_part(2.5, 50)
    made.run_part(2.5, 50)
    assert (made.messages, made.seconds, made.messages_per_s) == (3000, 5.0, 600.0)
    assert set(made.cpu_s) == {"engine"}
    codes[0] = {0: 29, 203: 1}
    with pytest.raises(RunError, match="203"):
        made.run_part(2.5, 50)


def test_a_slaves_rate_counts_from_the_last_moment_without_progress():
    way = Chase(goal=1000 * MB)
    way.note(0.0, None, False)
    for at_s, end_mb in ((1.0, 200), (2.0, 200), (3.0, 600), (4.0, 1000)):
        way.note(at_s, end_mb * MB, False)
    assert not way.is_over
    way.note(4.5, 1100 * MB, True)
    assert way.is_over and (way.caught_up_s, way.in_sync_s) == (4.0, 4.5)
    assert way.behind_bytes == 800 * MB
    assert way.mb_per_s == pytest.approx(400.0)


def test_a_record_of_before_the_stop_does_not_make_a_slave_in_sync():
    way = Chase(goal=100)
    way.note(0.0, 10, True)
    assert not way.is_over
    way.note(1.0, 100, True)
    assert way.is_over


class StillGroup:
    """A group whose slave does not move."""

    is_in_sync = False

    def __init__(self):
        self.pids = {"master": 0, "slave": 0}  # no processes: no CPU

    def log_end(self, broker):
        return 5


def test_a_slave_that_does_not_come_is_told():
    with pytest.raises(RunError, match=r"not in sync within 0\.01 s"), chase(StillGroup(), "b", 10, timeout_s=0.01):
        pass


def test_a_group_knows_its_processes_by_their_role(tmp_path, monkeypatch):
    facts = {"config": tmp_path.as_uri(), "replicas": {"main": ["engine", "engine-r2"]}, "data": str(tmp_path)}
    pids = {"engine": 11, "engine-r2": 12, "controller": 13}
    instance = SimpleNamespace(facts=facts, now=lambda: SimpleNamespace(pids=pids))
    with group.group_of(instance) as made:
        with pytest.raises(RunError, match="no master yet"):
            _ = made.master
        record = GroupRecord(1, GroupState.SYNC_REPLICATION, "engine-r2", {"engine": 1, "engine-r2": 2})
        made._coordination.write("main", record, 0)
        assert (made.master, made.slave, made.is_in_sync) == ("engine-r2", "engine", True)
        assert made.pids == {"slave": 11, "master": 12, "controller": 13}


def test_the_end_of_a_log_is_read_from_a_page_of_metrics(tmp_path, monkeypatch):
    facts = {"config": tmp_path.as_uri(), "engine": {"host": "h", "port": 1}, "ops": {"engine": 2}}
    pages = ["penstock_broker_log_end_position_bytes 1.5e+06\npenstock_broker_log_durable_position_bytes 1.0\n", ""]
    monkeypatch.setattr(group, "metrics_page", lambda host, port: pages.pop(0))
    with group.group_of(SimpleNamespace(facts=facts)) as made:
        assert made.log_end("engine") == 1_500_000
        assert made.log_end("engine") is None


def histogram(values_ms):
    made = pytest.importorskip("bench._histogram").Histogram()
    for each in values_ms:
        made.record(int(each * 1e6))
    return made


def test_an_open_loop_with_refusals_has_a_missed_figure():
    loaded = SimpleNamespace(latency=histogram([0.5] * 99 + [1.5]))
    good = list(paced.figures("5,000/s", SimpleNamespace(loaded=loaded, complaints=[]), 1.0))
    assert [each.text for each in good] == ["5,000/s: p50", "5,000/s: p99", "5,000/s: p99.9"] and good[1].met
    bad = list(paced.figures("5,000/s", SimpleNamespace(loaded=loaded, complaints=["3 answers with code 201"]), 1.0))
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(table("paced", bad))
    assert "3 answers with code 201" in console.export_text() and not bad[-1].met


def test_two_histograms_are_one_of_all_values():
    first, second = histogram([0.5, 2.0]), histogram([200.0])
    first.add(second)
    assert (len(first), first.max_ns) == (3, 200_000_000)
    assert first.percentile(0.5) == pytest.approx(2e6, rel=0.01)
    assert (first.share_under_1_ms, first.share_under_100_ms) == (pytest.approx(1 / 3), pytest.approx(2 / 3))


def test_a_refusal_while_a_slave_catches_up_ends_the_case(monkeypatch):
    refused = SimpleNamespace(counts={"codes": {203: 1}}, latency=None)
    monkeypatch.setattr(behind, "run_load", lambda settings, target: refused)
    with pytest.raises(RunError, match="203"):
        behind.loaded(LoadSettings(rate=5000), TARGET)
