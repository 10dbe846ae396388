"""The operator's pages of one process: /readyz and /metrics, read with a bound on time."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from common.ops.page_reader import PageAnswer, read_page, readiness_of

LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{[^}]*\})? (\S+)", re.MULTILINE)
BUILD = re.compile(r'^penstock_build_info\{version="([^"]*)"\}', re.MULTILINE)


@dataclass(frozen=True)
class ProcessPages:
    """What the pages tell.

    Attributes:
        fault: why there is none, or why the process is not ready; empty: it is ready.
        metrics: by name; the values of all label sets are added up.
    """

    fault: str
    notes: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    version: str = ""


def read_pages(host: str, port: int) -> ProcessPages:
    """Both pages. Never raises: a process that does not answer has a fault."""
    try:
        ready, metrics = read_page((host, port), "/readyz"), read_page((host, port), "/metrics").text
    except OSError as error:
        return ProcessPages(f"its pages do not answer at {host}:{port} ({error})")
    fault, notes = readiness(ready)
    return ProcessPages(fault, notes, totals(metrics), version_of(metrics))


def readiness(answer: PageAnswer) -> tuple[str, Mapping[str, str]]:
    """(faults as one sentence, notes) from the answer of /readyz."""
    try:
        found = readiness_of(answer)
    except ValueError:
        return f"/readyz answers {answer.text[:80]!r}", {}
    faults = "; ".join(f"{name}: {reason}" for name, reason in found.faults.items())
    return ("" if found.is_ready else faults or "not ready"), found.notes


def version_of(metrics: str) -> str:
    """The version that a process runs, from its page of metrics; empty for one that does not tell."""
    found = BUILD.search(metrics)
    return found[1] if found else ""


def totals(text: str) -> dict[str, float]:
    """The values of a page of metrics by name, added up over their labels. Buckets of histograms are left out."""
    found: dict[str, float] = {}
    for name, _, value in LINE.findall(text):
        if not name.endswith("_bucket"):
            found[name] = found.get(name, 0.0) + float(value)
    return found
