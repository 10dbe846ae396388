"""Dead letters of a group: list with filter, one with its message, redrive, export."""

import csv
import io
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from flask import Response, redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.dead_letters import CAUSES
from console.entries import OFFSET_MAX, TIME_RULE, time_ms, whole
from console.errors import InvalidForm
from console.installation.dead_letters import DeadLetterRow, without_marks
from console.installation.stored_messages import FoundMessage
from console.pages.actions import cell
from console.pages.group_actions import checked_topics, record
from console.pages.messages import body_views
from console.parts import form, mask, parts
from console.roles import Role
from console.routes import action, page, resource
from console.security.masking import HIDDEN, Mask
from engine.client.dead_letters import DeadLetterChoice

PAGE, EXPORT_MAX = 100, 2_000
CHOSEN_MAX = 100
FIELDS = ("topic", "cause", "reason", "since", "until")
COLUMNS = (
    "broker_group", "offset", "died_ms", "cause", "reason", "attempts", "topic", "queue", "message_offset", "id", "key",
    "properties", "body",
)  # fmt: skip


@page("/groups/<name>/dead-letters", role=Role.OWNER, sample="/groups/shipping/dead-letters")
def index(name: str) -> ResponseReturnValue:
    """The oldest dead letters that match the filter."""
    topics = checked_topics(name)
    asked = _asked(request.args)
    try:
        rows, has_more = parts().dead_letters.oldest(name, _choice(asked), PAGE)
        fault = ""
    except InvalidForm as error:
        rows, has_more, fault = [], False, " ".join(error.faults.values())
    redriven = whole(request.args.get("redriven", ""), OFFSET_MAX)
    return render_template(
        "messages/dead_letters.html", name=name, topics=topics, asked=asked, rows=_seen(rows), has_more=has_more, fault=fault,
        causes=CAUSES, redriven=redriven, is_part=request.args.get("more") == "1", limit=EXPORT_MAX,
    )  # fmt: skip


@page(
    "/groups/<name>/dead-letters/<broker_group>/<int:offset>",
    role=Role.OWNER,
    sample="/groups/shipping/dead-letters/main/0",
)
def show(name: str, broker_group: str, offset: int) -> ResponseReturnValue:
    """One dead letter with its message."""
    checked_topics(name)
    found = parts().dead_letters.one(name, broker_group, offset) if offset <= OFFSET_MAX else None
    if found is None:
        raise NotFound("There is no such dead letter any more: it was redriven, acknowledged or deleted.")
    (row,), message = _seen([found[0]]), mask(found[0].topic).of(found[1])
    return render_template(
        "messages/dead_letter.html", name=name, row=row, message=message, properties=without_marks(message),
        **body_views(message, request.args.get("view", "")),
    )  # fmt: skip


@action("/groups/<name>/dead-letters/redrive", role=Role.OWNER)
def redrive(name: str) -> ResponseReturnValue:
    """Send the chosen dead letters again, or all that match the filter, in one bounded step."""
    checked_topics(name)
    asked = _asked(form())
    if form().get("all") == "yes":
        done = parts().dead_letters.redrive(name, _choice(asked))
        count, has_more, said = done.sent, done.has_more, _choice(asked).given()
    else:
        count, has_more = 0, False
        chosen = _chosen(request.form.getlist("place"))
        for broker_group, offsets in chosen.items():
            count += parts().dead_letters.redrive(name, DeadLetterChoice(offsets=offsets), broker_group).sent
        said = {"places": [f"{group}/{at}" for group, offsets in chosen.items() for at in offsets]}
    record("redrive", "dead_letters", name, None, {"redriven": count, **said})
    return redirect(f"/groups/{name}/dead-letters?redriven={count}{'&more=1' if has_more else ''}", 303)


@resource("/groups/<name>/dead-letters.<kind>", role=Role.OWNER)
def export(name: str, kind: str) -> ResponseReturnValue:
    """The dead letters that match the filter with their messages, as CSV or as one JSON object per line."""
    checked_topics(name)
    if kind not in ("csv", "jsonl"):
        raise NotFound("Export as csv or jsonl.")
    rows, _ = parts().dead_letters.oldest(name, _choice(_asked(request.args)), EXPORT_MAX)
    hidden = {topic: mask(topic) for topic in {row.topic for row in rows}}
    values = (_values(hidden[row.topic], row, message) for row, message in parts().dead_letters.messages(name, rows))
    text = "".join(_csv(values) if kind == "csv" else (json.dumps(each) + "\n" for each in values))
    headers = {"Content-Disposition": f'attachment; filename="dead-letters.{kind}"'}
    record("export", "dead_letters", name, None, {"exported": len(rows)})
    return Response(text, mimetype="text/csv" if kind == "csv" else "application/x-ndjson", headers=headers)


def _csv(values: Iterator[dict[str, Any]]) -> Iterator[str]:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for each in values:
        body = each.get("body", each.get("body_base64", ""))
        writer.writerow([cell({**each, "body": body}[column]) for column in COLUMNS])
    yield out.getvalue()


def _seen(rows: list[DeadLetterRow]) -> list[DeadLetterRow]:
    """The rows with the keys that the account sees."""
    hidden = {topic: mask(topic) for topic in {row.topic for row in rows}}
    return [_with_key(hidden[row.topic], row) for row in rows]


def _with_key(hidden: Mask, row: DeadLetterRow) -> DeadLetterRow:
    return row._replace(key=HIDDEN) if hidden.key and row.key else row


def _values(hidden: Mask, row: DeadLetterRow, message: FoundMessage | None) -> dict[str, Any]:
    shown = _with_key(hidden, row)._asdict()
    found: dict[str, Any] = {name: value for name, value in shown.items() if name != "first_ms"}
    message = message and hidden.of(message)
    found["properties"] = {} if message is None else without_marks(message)
    if message is None:
        return found
    text = message.text
    return {**found, **({"body_base64": b64encode(message.body).decode()} if text is None else {"body": text})}


def _asked(values: Any) -> dict[str, str]:
    return {field: values.get(field, "").strip()[:300] for field in FIELDS}


def _choice(asked: dict[str, str]) -> DeadLetterChoice:
    """Raises InvalidForm."""
    times: dict[str, int | None] = {}
    for field in ("since", "until"):
        times[field] = time_ms(asked[field]) if asked[field] else None
        if asked[field] and times[field] is None:
            raise InvalidForm({field: TIME_RULE})
    if asked["cause"] and asked["cause"] not in CAUSES:
        raise InvalidForm({"cause": f"Choose one of {', '.join(CAUSES)}."})
    topic, cause, reason = (asked[field] or None for field in ("topic", "cause", "reason"))
    return DeadLetterChoice(topic, cause, reason, times["since"], times["until"])


def _chosen(places: list[str]) -> dict[str, list[int]]:
    """Offsets by broker group. Raises InvalidForm."""
    found: dict[str, list[int]] = {}
    for place in places:
        broker_group, _, text = place.rpartition("/")
        offset = whole(text, OFFSET_MAX)
        if offset is None or broker_group not in parts().brokers.places():
            raise InvalidForm({"": "Choose dead letters from the list. Nothing was sent."})
        found.setdefault(broker_group, []).append(offset)
    if not 1 <= len(places) <= CHOSEN_MAX:
        raise InvalidForm({"": f"Choose 1 to {CHOSEN_MAX} dead letters. Nothing was sent."})
    return found
