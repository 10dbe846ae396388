"""A plan for the redrive of dead letters: one command per cause, reason and topic. Pure.

`penstock group dead-letters redrive` chooses by these, not by shape, so classes that differ in shape share a command. A
command that takes other classes, too, says which.
"""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from pipeline.dead_letters.classes import DeadLetterClass, DeadLetterClasses
from pipeline.dead_letters.shapes import literal_of

LITERAL_CHARS_MIN = 3


class RedriveStep(NamedTuple):
    """One command.

    Attributes:
        command: of a shell. It leaves what was dead-lettered after the report.
        takes: numbers of the classes that it was made for, from 1; `also_takes`: of others that it takes, too.
        letters: their dead letters together, some of which may have been taken out before.
    """

    command: str
    takes: list[int]
    also_takes: list[int]
    letters: int


def redrive_plan(found: DeadLetterClasses, until_ms: int) -> list[RedriveStep]:
    """The commands, in the order of the classes. `until_ms`: of the report; what came later is not chosen."""
    steps: dict[tuple[str, str, str], list[int]] = {}
    for number, each in enumerate(found.classes, 1):
        steps.setdefault((each.cause, each.topic, _chosen_reason(each)), []).append(number)
    made = []
    for (cause, topic, reason), takes in steps.items():
        chosen = [
            number for number, each in enumerate(found.classes, 1) if _is_chosen(each, cause, topic, reason)
        ]  # fmt: skip
        line = ["penstock", "group", "dead-letters", "redrive", found.group]
        for option, value in (("--cause", cause), ("--topic", topic), ("--reason", reason)):
            line += [option, value] if value else []
        line += ["--until-ms", str(until_ms)]
        letters = sum(found.classes[number - 1].letters for number in chosen)
        made.append(RedriveStep(shlex.join(line), takes, [each for each in chosen if each not in takes], letters))
    return made


def script(group: str, classes: Sequence[DeadLetterClass], steps: Sequence[RedriveStep]) -> str:
    """The plan as a shell script in which every command is a comment: an operator enables those that are to run."""
    lines = [
        "#!/bin/sh", f"# Redrive of the dead letters of group {group}. Remove the mark before each command to run.",
        "# Mend the cause first: a message that fails again comes back as a dead letter.", "set -e",
    ]  # fmt: skip
    for each in steps:
        lines.append("")
        for number in each.takes:
            one = classes[number - 1]
            lines.append(f"# class {number}: {one.letters:,} × {one.reason or 'no reason'}, body {one.shape}"[:200])
        if each.also_takes:
            lines.append(f"# takes classes {', '.join(map(str, each.also_takes))}, too")
        lines.append(f"# {each.command}")
    return "\n".join(lines) + "\n"


def _chosen_reason(each: DeadLetterClass) -> str:
    literal = literal_of(each.reason)
    return literal if len(literal) >= LITERAL_CHARS_MIN else ""


def _is_chosen(each: DeadLetterClass, cause: str, topic: str, reason: str) -> bool:
    return each.cause == cause and each.topic == topic and reason in each.reason
