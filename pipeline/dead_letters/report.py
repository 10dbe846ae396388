"""The report on dead letters: `dead-letters.md`, `dead-letters.json`, and the plan `redrive.sh`."""

from typing import Any

from common.utc import utc
from pipeline.archive.place import ArchivePlace
from pipeline.dead_letters.classes import DeadLetterClass, DeadLetterClasses
from pipeline.dead_letters.redrive import RedriveStep, redrive_plan, script

PAGE, DATA, PLAN = "dead-letters.md", "dead-letters.json", "redrive.sh"
SAMPLE_CHARS = 400


def write_dead_letter_report(found: DeadLetterClasses, folder: str, until_ms: int) -> dict[str, Any]:
    """Write the three files into a directory or URL, in place of earlier ones; returns the data."""
    place, steps = ArchivePlace(folder), redrive_plan(found, until_ms)
    data = {
        "group": found.group, "dead_letters": found.letters, "class_count": found.class_count, "until_ms": until_ms,
        "classes": [
            {**each._asdict(), "samples": [one._asdict() for one in each.samples]} for each in found.classes
        ],
        "redrive": [each._asdict() for each in steps],
    }  # fmt: skip
    place.write_json(DATA, data)
    place.write_text(PLAN, script(found.group, found.classes, steps))
    place.write_text(PAGE, page(found, steps))
    return data


def page(found: DeadLetterClasses, steps: list[RedriveStep]) -> str:
    """The report for people."""
    lines = [f"# Dead letters of group {found.group}", ""]
    lines += [f"{found.letters:,} are stored, in {found.class_count:,} classes of cause, reason, topic and shape.", ""]
    lines += [
        "Some may have been redriven, purged or pulled since; `penstock group dead-letters list` shows the rest.",
        "",
    ]
    if found.class_count > len(found.classes):
        lines += [f"Only the {len(found.classes):,} largest classes are listed.", ""]
    lines += [
        "| class | dead letters | messages | cause | reason | topic | body | last |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for number, each in enumerate(found.classes, 1):
        cells = [
            str(number), f"{each.letters:,}", f"{each.messages:,}", each.cause, each.reason or "–", each.topic,
            f"`{each.shape}`", utc(each.last_ms),
        ]  # fmt: skip
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    lines += ["", "## Redrive", ""]
    for step in steps:
        also = f", and classes {', '.join(map(str, step.also_takes))}" if step.also_takes else ""
        lines += [f"Classes {', '.join(map(str, step.takes))}{also}:", "", f"    {step.command}", ""]
    lines += ["## Samples", ""]
    for number, each in enumerate(found.classes, 1):
        lines += [
            f"Class {number}, {utc(each.first_ms)} to {utc(each.last_ms)}, at most {each.attempts} attempts:",
            "",
        ]
        lines += [line for one in each.samples for line in _sample_lines(each, one)]
    return "\n".join(lines).rstrip() + "\n"


def _sample_lines(each: DeadLetterClass, sample: Any) -> list[str]:
    origin = f"{each.topic} queue {sample.message_queue} offset {sample.message_offset}"
    text = " ".join(sample.text.split())[:SAMPLE_CHARS]
    return [
        f"- offset {sample.offset}, id {sample.id}, key {sample.key or '–'}, from {origin}: {sample.reason}",
        "",
        f"      {text}",
        "",
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
