"""One command of a rehearsal's walk: it is run as a process, killed where that was drawn, and run again until it has ended."""

import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from migration.recipes.registry import courses_of
from migration.rehearsal.report import StepResult
from migration.rehearsal.walk import OPERATOR, RehearsedCommand
from migration.states import PlanState
from penstock.rehearsal.site import RehearsalSite

PAUSE_S = 0.5
"""Pause before a command that was given up is run again: what refused it has to go on first."""
LOOK_S = 0.02
END_S_MAX = 5.0
CLOCK_CHARS = len("HH:MM:SS ")
LISTED_MAX = 8
ANSWERS = {
    "--accept counts": ("--accept", "counts"), "--accept error-rate": ("--accept", "error-rate"),
    "ids differ": ("--from", "10s"),
}  # fmt: skip
"""Options with which a command is run after a refusal, by a part of its sentence, once something was killed. They are what
the runbook says: sends fail while a process is dead, and a caller that sends again what a killed proxy had may double a
message on one side, which no repair takes back. The comparison of everything at the end and the ledger judge whether that
was all."""


class _Told:
    """A command's lines on stderr, read by a thread."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.lines: list[str] = []
        self._process = process
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._drain)]
        for each in self._threads:
            each.start()

    def _read(self) -> None:
        for line in self._process.stderr or ():
            self.lines.append(line.strip())

    def _drain(self) -> None:
        for _ in self._process.stdout or ():
            pass

    def finish(self) -> None:
        for each in self._threads:
            each.join(END_S_MAX)

    def sentences(self) -> list[str]:
        """Without the time of the day."""
        return [each[CLOCK_CHARS:] if each[2:3] == ":" == each[5:6] else each for each in [*self.lines]]


class StepRunner:
    """
    Args:
        plan: name of the rehearsal's plan.
        state: reads the plan's state.
        gates: numbers of a status.
        step_s_max: time for one command, with all its runs.
        progress: called with sentences.
    """

    def __init__(
        self, site: RehearsalSite, plan: str, state: Callable[[], PlanState], gates: Callable[[], dict[str, Any]],
        step_s_max: float, progress: Callable[[str], object],
    ) -> None:  # fmt: skip
        self._site, self._plan, self._state, self._gates = site, plan, state, gates
        self._step_s_max, self._progress = step_s_max, progress
        self._has_killed = False

    def run(self, command: RehearsedCommand) -> StepResult:
        """Run a command to the end of its course. Raises RehearsalFailed: a killed process does not come again."""
        result = StepResult(command.name, gates=self._gates())
        began = time.monotonic()
        deadline = began + self._step_s_max
        while not result.is_done and time.monotonic() < deadline:
            if result.runs:
                time.sleep(PAUSE_S)
            name = "resume" if self._state().course else command.name
            self._run_once(name, command, result, deadline)
            state = self._state()
            result.is_done = not state.course and str(state.step) == command.to and not self._is_owed(command, result)
        result.took_s = time.monotonic() - began
        told = f", killed: {result.killed}" if result.killed else ""
        self._progress(f"{command.name}: {'done' if result.is_done else 'not done'} in {result.took_s:.1f} s{told}")
        return result

    @staticmethod
    def _is_owed(command: RehearsedCommand, result: StepResult) -> bool:
        return command.kill is not None and not result.killed

    def _run_once(self, name: str, command: RehearsedCommand, result: StepResult, deadline: float) -> None:
        result.runs += 1
        options = result.options if name == command.name else []
        process = self._site.begin(["migrate", name, self._plan, *options])
        told = _Told(process)
        try:
            while process.poll() is None and time.monotonic() < deadline:
                if self._is_owed(command, result) and self._is_at_kill(command, told):
                    self._strike(command, process, result, "in")
                time.sleep(LOOK_S)
            is_late = process.poll() is None
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            told.finish()
        self._note(result, told.sentences(), process.returncode, is_late)
        if self._is_owed(command, result):  # its sub-step was over before it was seen
            self._strike(command, process, result, "after")

    def _is_at_kill(self, command: RehearsedCommand, told: _Told) -> bool:
        assert command.kill is not None
        sub_steps = courses_of(self._state().recipe)[command.name].sub_steps
        wanted = f"{command.name}: {command.kill.sub_step}"
        if command.kill.sub_step == sub_steps[0]:
            wanted = f"{command.name} begun"
        return any(wanted in each for each in [*told.lines])

    def _strike(
        self, command: RehearsedCommand, process: "subprocess.Popen[str]", result: StepResult, when: str
    ) -> None:
        assert command.kill is not None
        sub_step, victim = command.kill
        result.killed = f"{victim} {when} {sub_step}"
        self._progress(f"{command.name}: {victim} is killed {when} {sub_step}")
        self._has_killed = True
        if victim == OPERATOR:
            process.kill()
        else:
            self._site.kill(victim)

    def _note(self, result: StepResult, sentences: list[str], code: int, is_late: bool) -> None:
        """Keep waits and refusals."""
        waits = [each for each in sentences if any(char.isdigit() for char in each) and _is_wait(each)]
        result.waits += [each for each in dict.fromkeys(waits) if each not in result.waits]
        del result.waits[LISTED_MAX:]
        if is_late:
            result.refusals.append(
                f"{self._step_s_max:.0f} s were not enough; it waits: {sentences[-1] if sentences else '-'}"
            )
        elif code > 0:
            result.refusals.append(sentences[-1] if sentences else f"exit code {code}")
            for told, options in ANSWERS.items():
                if told in result.refusals[-1] and self._has_killed and options[-1] not in result.options:
                    result.options += options


def _is_wait(sentence: str) -> bool:
    """Whether a sentence is none that tells of a begin, an effect or an end."""
    return not sentence.startswith(("now ", "compared ", "penstock ")) and " topics" not in sentence.partition(":")[2]
