"""The engine's figures alone: what is a miss, loads in turns, and when a process began, from made-up figures and processes."""

import io
import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from bench import cases
from bench.alone import cold, restarting, turns
from bench.errors import RunError
from bench.figures import Figure, table
from bench.settings import LoadSettings


def shown(made):
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(made)
    return console.export_text()


def test_a_figure_is_held_against_its_bound_and_without_one_is_only_shown():
    text = shown(
        table("many", [Figure("born", 61.2, "s", most=60), Figure("calls", 41_234.5, "calls/s", least=40_000)])
    )
    assert "61.2" in text and "≤ 60" in text and text.count("missed") == 1
    assert "41,234" in text and "≥ 40,000" in text and text.count("met") == 1
    alone = shown(table("one", [Figure("held", 10.25, "GiB")]))
    assert "10.2" in alone and "met" not in alone and "missed" not in alone


def test_a_case_is_printed_as_a_line_of_json(monkeypatch, capsys):
    flat = {"flat": lambda scale, seconds, say: [Figure("calls", scale * seconds, "", least=3)]}
    monkeypatch.setattr(cases, "require_native", lambda: None)
    monkeypatch.setattr(cases.signal, "signal", lambda *of: None)
    assert cases.run_cases("p", "Cases.", flat, ["flat", "--scale", "0.5", "--seconds", "4", "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["case"], said["figures"][0]["value"], said["figures"][0]["met"]) == ("flat", 2.0, False)


def test_a_case_that_breaks_off_ends_with_one_line(monkeypatch, capsys):
    def broken(scale, seconds, say):
        raise RunError("the engine is gone")

    monkeypatch.setattr(cases, "require_native", lambda: None)
    monkeypatch.setattr(cases.signal, "signal", lambda *of: None)
    assert cases.run_cases("p", "Cases.", {"cold": broken}, ["cold"]) == 1
    assert capsys.readouterr().err == "bench: the engine is gone\n"


def loaded(calls, codes=(0,)):
    return SimpleNamespace(counts={"calls": calls, "window_s": 0.5, "codes": dict.fromkeys(codes, calls)})


def test_loads_run_in_turns_and_each_is_added_up(monkeypatch):
    asked = []

    def run_load(settings, target):
        asked.append((settings.topics, settings.seconds))
        return loaded(settings.topics)

    monkeypatch.setattr(turns, "run_load", run_load)
    few, many = turns.in_turns([(LoadSettings(topics=16, seconds=8), None), (LoadSettings(topics=64, seconds=8), None)])
    assert asked == [(16, 2.0), (64, 2.0)] * turns.ROUNDS
    assert (few.calls_per_s, many.calls_per_s) == (32, 128)


def test_a_refused_message_ends_the_turns(monkeypatch):
    monkeypatch.setattr(turns, "run_load", lambda settings, target: loaded(1, codes=(0, 203)))
    with pytest.raises(RunError, match="203"):
        turns.in_turns([(LoadSettings(), None)])


def test_a_processs_start_is_told_on_the_clock_that_its_first_answer_is():
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        began = restarting._started_at(process.pid)
        assert restarting._is_running(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not restarting._is_running(process.pid), "a zombie has ended"
    assert before - 0.02 <= began <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_what_the_page_cache_forgets_stays_on_disk(tmp_path):
    (tmp_path / "0.seg").write_bytes(b"x" * 10_000)
    cold.forget(tmp_path)
    assert (tmp_path / "0.seg").read_bytes() == b"x" * 10_000
