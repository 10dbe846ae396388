"""The run with a stopped engine: its comparison with the log, its windows and its page, each from made-up data."""

import json
from io import BytesIO

import pytest

from bench.fallback import audit as auditing
from bench.fallback import parts
from bench.fallback.__main__ import broken_promises, drained_in, live_figures
from bench.fallback.load import KEYS, TimedCall, body_of
from bench.fallback.page import main, with_gaps
from bench.fallback.seconds import OutageMarks, by_second, p99_ms
from bench.generator import LoadTarget
from common.contract import Code
from tests.waiting import until

NOBODY = LoadTarget(("", 0), ("", 0), "app", "key", "secret")
MARKS = OutageMarks(100.0, 110.0, 120.0, 121.0, 130.0)


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
    calls = [
        TimedCall(100.5, 0.001, 0),
        TimedCall(115.0, 0.9, 1),
        TimedCall(115.1, 0.002, 1),
        TimedCall(120.5, 0.003, 0),
    ]
    windows = MARKS.windows(0.0)
    assert [p99_ms(calls, *windows[name]) for name in ("before", "outage", "drain", "after")] == [1.0, 900.0, 3.0, None]
    assert by_second(calls, MARKS) == [(0, 1.0), (15, 900.0), (20, 3.0)]


def test_a_promise_that_was_not_kept_is_named():
    kept = {"failed": 0, "lost": 0, "swapped": 0, "other_ids": 0, "drained_s": 59.9}
    assert broken_promises(kept) == []
    assert broken_promises({**kept, "lost": 1, "drained_s": 60.1}) == ["lost", "drained_s"]


def test_live_calls_are_counted_by_window_and_their_failures_by_code_and_until_when():
    calls = [
        TimedCall(100.0 + n / 10, 0.001 if n < 100 else 0.004, int(Code.OK)) for n in range(300) if not 100 <= n < 200
    ]
    calls[100] = TimedCall(120.001, 0.0, int(Code.UNAVAILABLE))
    found = live_figures(calls, MARKS)
    assert found["live_samples"] == {"before": 50, "drain": 9, "after": 90}
    assert (found["live_failed"], found["live_failed_codes"], found["live_failed_until_s"]) == (1, {203: 1}, 0.0)
    assert (found["live_p99_before_ms"], found["live_p99_drain_ms"], found["live_p99_ratio"]) == (1.0, 4.0, 4.0)


def test_what_was_drained_is_what_was_buffered_until_the_buffer_was_empty():
    calls = [TimedCall(at, 0.001, code) for at, code in ((115.0, 1), (119.0, 203), (120.5, 1), (120.9, 0), (122.0, 1))]
    assert drained_in(calls, MARKS) == 2


class Proxy:
    """Its backlog falls with each question."""

    def __init__(self, *counts):
        self.counts = list(counts)

    def __call__(self, url, timeout):
        count = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        return BytesIO(b'penstock_buffer_entries{store="disk"} %d\n' % count)


def test_the_backlog_is_seen_to_its_end_by_the_questions_that_are_asked_anyway(monkeypatch):
    monkeypatch.setattr(parts.urllib.request, "urlopen", Proxy(0, 7, 3, 0))
    monkeypatch.setattr(parts, "POLL_S", 0.001)
    backlog = parts.Backlog(0)
    until(lambda: backlog.highest == 7, "a backlog")
    empty_at = backlog.wait_empty(10.0)
    backlog.stop()
    assert backlog.highest == 7 and (empty_at, {"disk": 0}) in backlog.seen


def test_a_line_is_not_drawn_over_seconds_without_a_call():
    assert with_gaps([(1, 2.0), (2, 2.0), (9, 3.0)]) == [(1, 2.0), (2, 2.0), (8, None), (9, 3.0)]


def test_the_page_has_a_row_and_a_plot_for_each_run(tmp_path):
    pytest.importorskip("matplotlib")
    windows = dict.fromkeys(("p99_before_ms", "p99_outage_ms", "p99_drain_ms", "p99_after_ms"), 1.25)
    live = dict.fromkeys(("live_p99_before_ms", "live_p99_drain_ms", "live_p99_after_ms"), None)
    found = {"buffer": "redis+disk", "redis_mib_max": 8, "outage_s": 30.0, "rate": 1000, "sends": 60_000, "failed": 0, "lost": 0,
             "swapped": 0, "copies": 16, "backlog_max": 30_123, "drained_s": 2.5, "drained_per_s": 12_345, "live_failed": 3,
             "live_rate": 500, "live_p99_ratio": 1.62, "live_samples": {"before": 5000, "drain": 1250, "after": 7500},
             "in_store_max": {"redis": 20_000, "disk": 11_000}, **windows, **live}  # fmt: skip
    run = {"machine": "2 cores", "commit": "abc", "figures": found, "marks": MARKS.as_seconds(), "backlog": [(0.5, 0), (20.0, 9)],
           "buffered_p99_ms": [(0, 1.0)], "live_p99_ms": [(0, 1.0), (22, 2.0)]}  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert main(["--note", "It was busy.", "--dir", str(tmp_path), str(tmp_path / "run.json")]) == 0
    page = (tmp_path / "fallback.md").read_text()
    assert "\n\nIt was busy.\n\n|" in page
    counted = "30,123; redis up to 20,000, disk up to 11,000"
    assert (
        f"| redis+disk (Redis at maxmemory, 8 MiB), 30 s | 60,000 | 0 | 0 | 0 | 16 | {counted} | 2.5 | 12,345 | 3 |"
        in page
    )
    assert "| 1.6 | 1,250 : 5,000 |" in page
    assert (tmp_path / "fallback-redis-disk-8mib-30s.svg").read_text().startswith("<?xml")
