"""The operator's pages of one process: /readyz and /metrics, read with a bound on time."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PAGE_S_MAX = 2.0
PAGE_BYTES_MAX = 4 << 20
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
        ready_text = _get(host, port, "/readyz")
        metrics_text = _get(host, port, "/metrics")
    except OSError as error:
        return ProcessPages(f"its pages do not answer at {host}:{port} ({error})")
    fault, notes = readiness(ready_text)
    found = BUILD.search(metrics_text)
    return ProcessPages(fault, notes, totals(metrics_text), found[1] if found else "")


def readiness(text: str) -> tuple[str, dict[str, str]]:
    """(faults as one sentence, notes) from the answer of /readyz."""
    try:
        state = json.loads(text)
        faults = "; ".join(f"{name}: {reason}" for name, reason in state["faults"].items())
        return ("" if state["ready"] else faults or "not ready"), state["notes"]
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"/readyz answers {text[:80]!r}", {}


def totals(text: str) -> dict[str, float]:
    """The values of a page of metrics by name, added up over their labels. Buckets of histograms are left out."""
    found: dict[str, float] = {}
    for name, _, value in LINE.findall(text):
        if not name.endswith("_bucket"):
            found[name] = found.get(name, 0.0) + float(value)
    return found


def _get(host: str, port: int, path: str) -> str:
    """Raises OSError."""
    import http.client  # not at import: commands that read no page do not wait for it

    connection = http.client.HTTPConnection(host, port, timeout=PAGE_S_MAX)
    try:
        connection.request("GET", path)
        return connection.getresponse().read(PAGE_BYTES_MAX).decode(errors="replace")
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()
