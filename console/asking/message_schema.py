"""The JSON schema of a topic's messages: its text checked, a body checked against it, and two texts compared."""

import difflib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

SCHEMA_CHARS_MAX = 16_000
PROCESS_S_MAX = 3.0
AT_ONCE_MAX = 2
WAIT_S_MAX = 5.0
KNOWN_MAX = 64
TOO_LONG = f"The check took longer than {PROCESS_S_MAX:.0f} seconds: make the schema simpler."
NOT_NOW = "It cannot be checked at this moment: try again."
_places = threading.BoundedSemaphore(AT_ONCE_MAX)


class SchemaCheck(NamedTuple):
    """Attributes: schema_fault: why the text is no schema; empty: it is one. body_faults: what the body breaks."""

    schema_fault: str
    body_faults: Sequence[str]


def text_fault(text: str) -> str:
    """Why the text is no JSON object; empty: it is one, or empty. Starts no process."""
    if len(text) > SCHEMA_CHARS_MAX:
        return f"Use at most {SCHEMA_CHARS_MAX:,} characters."
    try:
        found = json.loads(text) if text else {}
    except ValueError as error:
        return f"It is no JSON text: {error}."
    except RecursionError:
        return "It is nested too deeply."
    return "" if isinstance(found, dict) else "A schema is a JSON object."


def schema_fault(text: str) -> str:
    """Why the text is no JSON schema; empty: it is one, or there is none. Takes a process and some 0.1 s."""
    if not text or (fault := text_fault(text)):
        return fault if text else ""
    return _known(text)


def body_check(schema: str, body: str) -> SchemaCheck:
    """Check a body against a schema, in a separate process."""
    return _ask(schema, body)


class _NotChecked(Exception):
    """The text was not judged, so that the answer must not be kept."""


def _known(text: str) -> str:
    try:
        return _judged(text)
    except _NotChecked as reason:
        return str(reason)


@lru_cache(KNOWN_MAX)  # the form asks again with each change of another field
def _judged(text: str) -> str:
    found = _ask(text, None)
    if found.schema_fault in (TOO_LONG, NOT_NOW):
        raise _NotChecked(found.schema_fault)
    return found.schema_fault


def _ask(schema: str, body: str | None) -> SchemaCheck:
    if not _places.acquire(timeout=WAIT_S_MAX):
        return SchemaCheck(NOT_NOW, ())
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "console.asking.schema_process"], input=json.dumps({"schema": schema, "body": body}),
            capture_output=True, timeout=PROCESS_S_MAX, env=kept, text=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return SchemaCheck(TOO_LONG, ())
    finally:
        _places.release()
    try:
        found = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip().splitlines()
        return SchemaCheck(f"The check failed: {said[-1][:300] if said else 'it needs too much memory'}.", ())
    return SchemaCheck(found["schema_fault"], found["body_faults"])


def difference(old: str, new: str) -> list[tuple[str, str]]:
    """Lines of both texts: (kind, line), where the kind is "ins", "del" or ""."""
    kinds = {"+": "ins", "-": "del", " ": ""}
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
    return [(kinds[line[0]], line[1:]) for line in list(lines)[2:] if line[0] in kinds]
