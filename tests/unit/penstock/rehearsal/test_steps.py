"""One command of a rehearsal: it is run until its step is reached, killed where that was drawn, and given up in time.

The commands are small processes that print what `penstock migrate` would print.
"""

import subprocess
import sys

import pytest

from migration.recipes.course import PlanStep
from migration.rehearsal.walk import OPERATOR, Kill, RehearsedCommand
from migration.states import PlanState
from penstock.rehearsal import steps
from penstock.rehearsal.steps import StepRunner

HANGS = "import sys, time; print('20:00:01 cut: quiet', file=sys.stderr, flush=True); time.sleep(60)"
ENDS = "pass"


def says(sentence, code=4):
    return f"import sys; print({sentence!r}, file=sys.stderr); sys.exit({code})"


class Site:
    """Runs the scripts one after another; the plan has been cut when the last one has ended well."""

    def __init__(self, *scripts) -> None:
        self.scripts, self.lines, self.killed = [*scripts], [], []
        self.state, self.told = PlanState("copy", PlanStep.VERIFIED), []

    def begin(self, arguments):
        self.lines.append(" ".join(arguments))
        script = self.scripts.pop(0)
        if script is ENDS:
            self.state = PlanState("copy", PlanStep.CUT)
        line = [sys.executable, "-c", script]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def kill(self, process) -> None:
        self.killed.append(process)

    def run(self, command, step_s=30.0):
        return StepRunner(self, "copy", lambda: self.state, lambda: {"behind": 3}, step_s, self.told.append).run(
            command
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(steps, "PAUSE_S", 0.0)


def test_a_command_that_was_given_up_is_run_again_until_its_step_is_reached():
    site = Site(says("20:00:00 penstock migrate cut: plan: the fence has ended"), ENDS)
    result = site.run(RehearsedCommand("cut", "cut"))
    assert result.is_done and (result.runs, result.gates) == (2, {"behind": 3})
    assert result.refusals == ["penstock migrate cut: plan: the fence has ended"]
    assert site.lines == ["migrate cut copy"] * 2


def test_the_operators_process_is_killed_in_its_sub_step_and_the_command_run_again():
    site = Site(HANGS, ENDS)
    result = site.run(RehearsedCommand("cut", "cut", Kill("quiet", OPERATOR)))
    assert result.is_done and result.killed == "operator in quiet" and result.took_s < 30


def test_another_process_is_killed_after_the_command_where_its_sub_step_was_not_seen():
    site = Site(ENDS, ENDS)
    result = site.run(RehearsedCommand("cut", "cut", Kill("drained", "engine")))
    assert result.is_done and (result.killed, site.killed) == ("engine after drained", ["engine"])


def test_red_counts_are_accepted_after_a_kill_as_the_runbook_says_and_not_before_one():
    counts = says("20:00:00 cut given up: use --accept counts")
    site = Site(counts, counts, ENDS)
    result = site.run(RehearsedCommand("cut", "cut", Kill("quiet", "engine")))
    assert result.is_done and result.options == ["--accept", "counts"]
    assert site.lines == ["migrate cut copy"] * 2 + ["migrate cut copy --accept counts"]


def test_a_command_that_does_not_end_in_its_time_is_not_done_and_told_with_what_it_waits_for():
    result = Site(HANGS).run(RehearsedCommand("cut", "cut"), step_s=1.5)
    assert not result.is_done and "were not enough; it waits: cut: quiet" in result.refusals[-1]
