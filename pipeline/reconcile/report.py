"""The report of a comparison: `report.md` for people, `report.json` for programs."""

from typing import Any

from pipeline.archive.place import ArchivePlace
from pipeline.reconcile.comparison import IdComparison

REPORT_NAMES = ("report.md", "report.json")


def summary(result: IdComparison) -> dict[str, Any]:
    """The result as JSON."""
    left, right = result.names
    return {
        "equal": result.is_equal,
        "sides": [
            {"name": name, "judged": judged, "messages": messages, "without_id": without_id}
            for name, judged, messages, without_id in zip(
                result.names, result.judged, result.counts, result.without_id, strict=True
            )
        ],
        "compared": result.rule,
        "differences": {result.said(kind): count for kind, count in result.differences.items()},
        "differing_buckets": result.buckets,
        "findings": result.findings,
        "first": [
            {
                "kind": result.said(row["kind"]), "id": row["id"], f"{left}_copies": row["lefts"],
                f"{right}_copies": row["rights"], f"{left}_first": _place(row, "left"),
                f"{right}_first": _place(row, "right"),
            }
            for row in result.first
        ],
        "notes": result.notes,
        "seconds": round(result.seconds, 1),
    }  # fmt: skip


def write_report(result: IdComparison, topic: str, folder: str) -> None:
    """Write both files into a directory or URL, each as a whole, in place of earlier ones."""
    place = ArchivePlace(folder)
    place.write_json(REPORT_NAMES[1], {"topic": topic, **summary(result)})
    place.write_text(REPORT_NAMES[0], markdown(result, topic))


def markdown(result: IdComparison, topic: str) -> str:
    """The report as a page."""
    found = summary(result)
    lines = [f"# Topic {topic}: {result.names[0]} against {result.names[1]}", ""]
    total = sum(result.differences.values())
    lines += ["No difference." if result.is_equal else f"**{total:,} ids differ.**", ""]
    lines += ["| side | messages | without an id | compared |", "|---|---|---|---|"]
    lines += [
        f"| {each['name']} | {each['messages']:,} | {each['without_id']:,} | {each['judged']} |"
        for each in found["sides"]
    ]
    lines += ["", f"Compared per id: {result.rule}. It took {result.seconds:,.1f} s.", ""]
    if found["differences"]:
        lines += ["| difference | ids |", "|---|---|"]
        lines += [f"| {name} | {count:,} |" for name, count in found["differences"].items()]
        left, right = result.names
        lines += ["", f"All are in the Parquet table `{result.findings}`. The first {len(found['first'])}:", ""]
        lines += [f"| difference | id | copies in {left} | copies in {right} | first in {left} | first in {right} |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [f"| {' | '.join(_cell(value) for value in each.values())} |" for each in found["first"]]
        lines.append("")
    lines += [f"- {note}" for note in result.notes]
    return "\n".join(lines).rstrip() + "\n"


def _place(row: dict[str, Any], side: str) -> str | None:
    offset = row[f"{side}_offset"]
    return None if offset is None else f"queue {row[f'{side}_queue']} offset {offset}"


def _cell(value: Any) -> str:
    return "–" if value is None else str(value).replace("|", "\\|").replace("\n", " ")
