"""The report of a rehearsal: Markdown and JSON. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from common.utc import utc
from migration.rehearsal.ledger import CallerView, Verdict
from migration.report import table

STEP_COLUMNS = ("command", "took", "killed", "runs", "longest_fence", "longest_stall", "answers")


@dataclass
class StepResult:
    """One command of the walk.

    Attributes:
        runs: processes of the command, with those that were killed or given up.
        killed: "VICTIM in SUB_STEP"; empty: nothing was.
        refusals: sentences by which the command was given up, or with which it waited when its time was over.
        options: with which it was run after a refusal, as the runbook says.
        waits: sentences with numbers for which it waited, in their order.
        gates: numbers at its beginning, as `penstock migrate status` shows them.
        is_done: whether the plan came to the command's step.
    """

    command: str
    took_s: float = 0.0
    runs: int = 0
    killed: str = ""
    refusals: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    gates: dict[str, Any] = field(default_factory=dict)
    caller: CallerView = field(default_factory=lambda: CallerView({}, 0.0, 0.0))
    is_done: bool = False


@dataclass
class RehearsalReport:
    """
    Attributes:
        sampled: records that were copied, by topic.
        copies, group_copies: names of the copies, by topic and by group.
        groups: what came of the groups' positions, by group; a mirror translates them.
        differing: ids that one side lacks, or that are altered, at the end; None: they were not compared.
        doubled: ids that one side has more often than the other one, then.
        stored: what the engine holds; None: not of this recipe.
        received: what consumers got.
        blockers: what would block the real run.
        failure: why the rehearsal ended early; empty: it did not.
    """

    plan: str
    digest: str
    recipe: str
    cluster: str
    run: str
    seed: int
    began_ms: int
    took_s: float = 0.0
    sampled: Mapping[str, int] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    group_copies: Mapping[str, str] = field(default_factory=dict)
    steps: list[StepResult] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)
    differing: int | None = None
    doubled: int = 0
    stored: Verdict | None = None
    received: Verdict | None = None
    blockers: Sequence[str] = ()
    failure: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether every step ended, nothing was lost, doubled or out of order, and both sides are equal."""
        verdicts = [each for each in (self.stored, self.received) if each is not None]
        return (
            not self.failure
            and bool(verdicts)
            and all(each.is_clean for each in verdicts)
            and all(each.is_done for each in self.steps)
            and not self.differing
        )

    def files(self) -> dict[str, str]:
        """The files of the report by name."""
        return {"rehearsal.json": self.as_json(), "rehearsal.md": self.as_markdown()}

    def as_json(self) -> str:
        value = {"is_clean": self.is_clean, **asdict(self)}
        value["steps"] = [{**asdict(each), "caller": each.caller._asdict()} for each in self.steps]
        return json.dumps(value, indent=1) + "\n"

    def as_markdown(self) -> str:
        outcome = "Nothing was lost, doubled or out of order." if self.is_clean else "**It has failed**: see below."
        parts = [
            f"# Rehearsal of plan {self.plan}", "",
            f"Begun {utc(self.began_ms)}, {self.took_s:,.0f} s. Digest {self.digest}, recipe {self.recipe}, Kafka cluster "
            f"{self.cluster}, run {self.run}, seed {self.seed}. {outcome}", "",
        ]  # fmt: skip
        if self.failure:
            parts += [f"It ended early: {self.failure}", ""]
        parts += ["## Steps", "", *table([_step_row(each) for each in self.steps], STEP_COLUMNS), ""]
        parts += [*self._told(), "## Messages", "", *self._messages(), ""]
        parts += ["## What would block the real run", ""]
        parts += [*(f"- {each}" for each in self.blockers or ["Nothing that is known now."]), ""]
        rows: list[dict[str, Any]] = [
            {"real": name, "copy": copy, "records_copied": self.sampled.get(name)} for name, copy in self.copies.items()
        ]
        rows += [{"real": f"group {name}", "copy": copy} for name, copy in self.group_copies.items()]
        return "\n".join([*parts, "## Copies", "", *table(rows, ("real", "copy", "records_copied")), ""])

    def _told(self) -> list[str]:
        """Gates, waits and refusals of the steps."""
        lines = []
        for number, each in enumerate(self.steps, 1):
            gates = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in each.gates.items())
            told = [f"at its beginning: {gates}"] if gates else []
            told += [f"waited: {sentence}" for sentence in each.waits]
            told += [f"given up: {sentence}" for sentence in each.refusals]
            told += [f"run after it with {' '.join(each.options)}"] if each.options else []
            lines += [f"- {number} {each.command}: {sentence}" for sentence in told]
        return ["### Gates and waits", "", *lines, ""] if lines else []

    def _messages(self) -> list[str]:
        rows = []
        for where, verdict in (("in the engine", self.stored), ("at consumers", self.received)):
            if verdict is not None:
                rows.append({
                    "where": where, "answered_ok": verdict.answered, "lost": verdict.lost, "doubled": verdict.doubled,
                    "out_of_order": verdict.unordered, "again": verdict.again,
                })  # fmt: skip
        lines = table(rows, ("where", "answered_ok", "lost", "doubled", "out_of_order", "again"))
        lines += ["", "*again*: sent again by its caller after an unknown outcome, or read again after a kill."]
        if self.differing is not None:
            lines += [
                "", f"The comparison of both sides before the last step: {self.differing:,} ids are missing or altered on "
                f"one side, {self.doubled:,} are doubled on one side.",
            ]  # fmt: skip
        lines += [f"\nPositions of group {name}: {told}." for name, told in self.groups.items()]
        for verdict in (self.stored, self.received):
            for what, ids in (verdict.examples if verdict is not None else {}).items():
                lines += ["", f"{what}: {', '.join(ids)}"]
        return lines


def _step_row(step: StepResult) -> dict[str, Any]:
    answers = ", ".join(f"{count:,} {name}" for name, count in step.caller.codes.items())
    return {
        "command": step.command if step.is_done else f"{step.command} (not done)", "took": f"{step.took_s:.1f} s",
        "killed": step.killed or None, "runs": step.runs, "longest_fence": _seconds(step.caller.fence_s_max),
        "longest_stall": _seconds(step.caller.stall_s_max), "answers": answers or None,
    }  # fmt: skip


def _seconds(value: float) -> str | None:
    return f"{value:.2f} s" if value else None
