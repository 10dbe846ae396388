"""The run with a stopped engine: its comparison with the log, its windows and its page, each from made-up data."""

import json

import pytest

from bench.fallback import audit as auditing
from bench.fallback.__main__ import broken_promises
from bench.fallback.load import KEYS, Call, body_of
from bench.fallback.page import main, with_gaps
from bench.fallback.seconds import Marks, by_second, p99_ms
from bench.generator import Target

NOBODY = Target(("", 0), ("", 0), "app", "key", "secret")
MARKS = Marks(100.0, 110.0, 120.0, 121.0, 130.0)


def audited(monkeypatch, stored, log) -> auditing.Audit:
    monkeypatch.setattr(auditing, "read_all", lambda *_: [(name, body_of(*place)) for name, place in log])
    return auditing.audit(NOBODY, "orders", 1, stored)


def test_a_log_that_has_everything_in_order_keeps_all_promises(monkeypatch):
    places = [(thread, number) for number in range(9) for thread in range(2)]
    log = [(f"id{place}", place) for place in places]
    assert audited(monkeypatch, places, log) == (0, 0, 0, 0)


def test_what_is_missing_swapped_copied_or_renamed_is_counted(monkeypatch):
    log = [("a", (0, 0)), ("c", (0, 2 * KEYS)), ("b", (0, KEYS)), ("a", (0, 0)), ("other", (0, KEYS))]
    found = audited(monkeypatch, [(0, 0), (0, KEYS), (0, 2 * KEYS), (0, 3 * KEYS)], log)
    assert found == auditing.Audit(lost=1, swapped=1, copies=2, other_ids=1)


def test_the_worst_of_a_second_is_found_in_that_second_and_that_window():
    calls = [Call(100.5, 0.001, 0), Call(115.0, 0.9, 1), Call(115.1, 0.002, 1), Call(120.5, 0.003, 0)]
    windows = MARKS.windows(0.0)
    assert [p99_ms(calls, *windows[name]) for name in ("before", "outage", "drain", "after")] == [1.0, 900.0, 3.0, None]
    assert by_second(calls, MARKS) == [(0, 1.0), (15, 900.0), (20, 3.0)]


def test_a_promise_that_was_not_kept_is_named():
    kept = {"failed": 0, "lost": 0, "swapped": 0, "other_ids": 0, "drained_s": 59.9}
    assert broken_promises(kept) == []
    assert broken_promises({**kept, "lost": 1, "drained_s": 60.1}) == ["lost", "drained_s"]


def test_a_line_is_not_drawn_over_seconds_without_a_call():
    assert with_gaps([(1, 2.0), (2, 2.0), (9, 3.0)]) == [(1, 2.0), (2, 2.0), (8, None), (9, 3.0)]


def test_the_page_has_a_row_and_a_plot_for_each_run(tmp_path):
    pytest.importorskip("matplotlib")
    windows = dict.fromkeys(("p99_before_ms", "p99_outage_ms", "p99_drain_ms", "p99_after_ms"), 1.25)
    live = dict.fromkeys(("live_p99_before_ms", "live_p99_drain_ms", "live_p99_after_ms"), None)
    found = {"buffer": "redis+disk", "redis_mib_max": 8, "outage_s": 30.0, "rate": 1000, "sends": 60_000, "failed": 0, "lost": 0,
             "swapped": 0, "copies": 16, "backlog_max": 30_123, "drained_s": 2.5, "live_failed": 3,
             "in_store_max": {"redis": 20_000, "disk": 11_000}, **windows, **live}  # fmt: skip
    run = {"machine": "2 cores", "commit": "abc", "figures": found, "marks": MARKS.as_seconds(), "backlog": [(0.5, 0), (20.0, 9)],
           "buffered_p99_ms": [(0, 1.0)], "live_p99_ms": [(0, 1.0), (22, 2.0)]}  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert main(["--note", "It was busy.", "--dir", str(tmp_path), str(tmp_path / "run.json")]) == 0
    page = (tmp_path / "fallback-runs.md").read_text()
    assert "\n\nIt was busy.\n\n|" in page
    counted = "30,123; redis up to 20,000, disk up to 11,000"
    assert f"| redis+disk (Redis at maxmemory, 8 MiB), 30 s | 60,000 | 0 | 0 | 0 | 16 | {counted} | 2.5 | 3 |" in page
    assert (tmp_path / "fallback-redis-disk-8mib-30s.svg").read_text().startswith("<?xml")
