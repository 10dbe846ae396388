"""The audit log: the console's own records, and the journal of the configuration store, which has the commands' too."""

import csv
import io
import json
from typing import Any

from flask import Response, render_template, request
from flask.typing import ResponseReturnValue

from common.admin import audit
from common.config.errors import ConfigError
from console.parts import parts
from console.roles import Role
from console.routes import page, resource
from console.shown import visible

PAGE, EXPORT_MAX = 50, 10_000
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@page("/audit", role=Role.OPERATOR, title="Audit", menu=5)
def index() -> ResponseReturnValue:
    """Records of actions, newest first."""
    text, of = request.args.get("q", "").strip()[:100], request.args.get("of", "console")
    before = request.args.get("before", "")
    rows: list[dict[str, Any]] = []
    fault, following = "", 0
    if of == "store":
        try:
            rows = [_journal_row(each) for each in audit.latest(parts().configuration.store, PAGE, who=text or None)]
        except ConfigError as error:
            fault = str(error)
    else:
        before_id = int(before) if before.isascii() and before.isdigit() and len(before) < 16 else 0
        rows = parts().log.latest(text, before_id, PAGE)
        following = rows[-1]["id"] if len(rows) == PAGE else 0
    shown = {"rows": [{**row, "changes": changes(row["old"], row["new"])} for row in rows], "text": text, "of": of}
    return render_template("rules/audit.html", **shown, fault=fault, following=following)


@resource("/audit.csv", role=Role.OPERATOR)
def export() -> ResponseReturnValue:
    """The newest records as CSV; a cell that a spreadsheet would take for a formula begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out)
    columns = ("id", "at_ms", "who", "address", "action", "subject", "old", "new")
    writer.writerow(columns)
    for row in parts().log.latest(request.args.get("q", "").strip()[:100], limit=EXPORT_MAX):
        writer.writerow([cell(row[name]) for name in columns])
    disposition = 'attachment; filename="audit.csv"'
    return Response(out.getvalue(), mimetype="text/csv", headers={"Content-Disposition": disposition})


def cell(value: Any) -> str:
    """A value as a cell of CSV, which no spreadsheet evaluates."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return f"'{visible(text)}" if text.startswith(FORMULA) else visible(text)


def changes(old: Any, new: Any) -> list[tuple[str, str, str]]:
    """Fields that differ, each with its old and new value as text."""
    before, after = (each if isinstance(each, dict) else {} for each in (old, new))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [(name, _text(before, name), _text(after, name)) for name in names[:40]]


def _text(value: dict[str, Any], name: str) -> str:
    if name not in value:
        return "–"
    found = value[name]
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _journal_row(row: dict[str, Any]) -> dict[str, Any]:
    names = ", ".join(row["names"][:5]) + (" …" if row["count"] > 5 else "")
    return {**row, "id": 0, "address": "", "subject": f"{row['kind'].replace('_', ' ')} {names}"}
