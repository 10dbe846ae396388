"""Stored messages of a topic: found by id, key, queue and offset, time or filter; shown as text, JSON or hex; a test message."""

from collections.abc import Callable
from typing import Any

from flask import Response, redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import Forbidden, NotFound

from common.errors import PenstockError
from common.filter.errors import FilterError
from common.filter.expression import read_filter
from common.filter.native import Filter
from common.ids import parse_id
from common.names import is_name
from console.asking.message_schema import body_check
from console.database.topic_notes import notes_of
from console.entries import OFFSET_MAX, QUEUE_MAX, TIME_RULE, time_ms, whole
from console.installation.message_copies import copies
from console.installation.message_trace import IN_FLIGHT, passage, trace
from console.installation.stored_messages import ID_CHARS_MAX, FoundMessage, Matching
from console.pages.connections import clients_of
from console.parts import account, actor, form, mask, may_use_topic, parts
from console.roles import Role
from console.routes import action, page, resource, with_said
from console.shown import dump, visible
from engine.client.admin import AdminError
from engine.link.errors import LinkError

LIMIT = 50
HOLDERS_MAX = 3
"""Groups whose clients are asked for on the page of a trace."""
SHOWN_BYTES_MAX = 64 << 10
TRIAL_BYTES_MAX = 1 << 20
FIELDS = ("by", "id", "queue", "offset", "from", "key", "since", "filter", "after", "before")
KEY_BYTES_MAX = 4_096
VIEWS = ("text", "json", "hex")
NOT_YOURS = "Messages of this topic are for the team that owns it and for operators."
NO_SEARCH = "Keys or properties of this topic are masked for your role: search by id, by place or by time."
FAILURES = (LinkError, AdminError, OSError)


@page(
    "/topics/<name>/messages", role=Role.OWNER, sample="/topics/orders.created/messages?by=time&from=2020-01-01T00:00"
)
def find(name: str) -> ResponseReturnValue:
    """The form, and what it finds."""
    check_topic(name)
    asked = {field: request.args.get(field, "").strip() for field in FIELDS}
    found: list[FoundMessage] | None = None
    fault, matching = "", None
    if asked["by"] in ("filter", "key") and mask(name).hides_search:
        fault = NO_SEARCH
    elif asked["by"] == "filter":
        fault, matching = _match(name, asked)
        found = matching.found if matching else None
    elif asked["by"]:
        search = _search(name, asked)
        if isinstance(search, str):
            fault = search
        else:
            try:
                found = search()
            except FAILURES as error:
                fault = f"The search failed: {error}"
    if found is not None:
        hidden = mask(name)
        found = [hidden.of(each) for each in found]
    shown = {"name": name, "asked": asked, "found": found, "fault": fault, "matching": matching, "limit": LIMIT}
    return render_template("messages/messages.html", **shown)


def _match(name: str, asked: dict[str, str]) -> tuple[str, Matching | None]:
    """The form's fault or the engines', or the messages that match a filter."""
    wanted = read_filter_text(asked["filter"])
    times = {field: time_ms(asked[field]) if asked[field] else None for field in ("after", "before")}
    if isinstance(wanted, str):
        return wanted, None
    if any(asked[field] and times[field] is None for field in times):
        return TIME_RULE, None
    try:
        return "", parts().messages.matching(name, wanted, times["after"] or 0, times["before"], LIMIT)
    except FAILURES as error:
        return f"The search failed: {error}", None


def read_filter_text(text: str) -> Filter | str:
    """A filter of the language of groups, or its fault."""
    try:
        return Filter(read_filter(text).formula)
    except FilterError as error:
        return f"The filter has a fault {error}"


def _search(name: str, asked: dict[str, str]) -> Callable[[], list[FoundMessage]] | str:
    """The look-up that the form asks for, or the form's fault."""
    messages = parts().messages
    if asked["by"] == "id":
        if not 1 <= len(asked["id"]) <= ID_CHARS_MAX:
            return f"Give an id of 1 to {ID_CHARS_MAX} characters."
        return lambda: messages.by_id(name, asked["id"])
    if asked["by"] == "place":
        queue, offset = whole(asked["queue"], QUEUE_MAX), whole(asked["offset"], OFFSET_MAX)
        if queue is None or offset is None:
            return "Give a queue and an offset as whole numbers from 0 on."
        return lambda: messages.browse(name, queue, offset, LIMIT)
    if asked["by"] == "time":
        from_ms = time_ms(asked["from"])
        if from_ms is None:
            return TIME_RULE
        return lambda: messages.since(name, from_ms, LIMIT)
    if asked["by"] == "key":
        since_ms = time_ms(asked["since"]) if asked["since"] else 0
        if since_ms is None:
            return TIME_RULE
        if len(asked["key"].encode(errors="replace")) > KEY_BYTES_MAX:
            return f"Give a key of at most {KEY_BYTES_MAX:,} bytes."
        key = asked["key"].encode(errors="replace").decode()
        return lambda: messages.by_key(name, key, since_ms, LIMIT)
    return "Search by id, by key, by queue and offset, by time, or by a filter."


@page("/topics/<name>/messages/<int:queue>/<int:offset>", role=Role.OWNER, sample="/topics/orders.created/messages/0/0")
def show(name: str, queue: int, offset: int) -> ResponseReturnValue:
    """One message."""
    message = _one(name, queue, offset)
    views = body_views(message, request.args.get("view", ""))
    return render_template("messages/message.html", name=name, message=message, **views)


@page(
    "/topics/<name>/messages/<int:queue>/<int:offset>/trace",
    role=Role.OWNER,
    sample="/topics/orders.created/messages/0/0/trace",
)
def show_trace(name: str, queue: int, offset: int) -> ResponseReturnValue:
    """The way of one message, as far as it is recorded."""
    message = _one(name, queue, offset)
    assigned = parse_id(message.id)
    accepted_ms = int.from_bytes(assigned[:6], "big") if assigned is not None else None
    found = trace(parts().brokers, name, queue, offset, message.stored_ms)
    shown = {"accepted_ms": accepted_ms, "passage": passage(accepted_ms, message.stored_ms, message.is_delayed)}
    told = parts().connections.deliveries(name, queue, offset)
    present = {(each.group, each.lease) for each in found.groups if each.lease}
    sure = {row.group for row in told.rows if (row.group, row.lease) in present}
    held = [each.group for each in found.groups if each.state == IN_FLIGHT and each.group not in sure]
    return render_template(
        "messages/trace.html", name=name, message=message, found=found, **shown, told=told, present=present, held=len(held),
        copies=copies(parts().brokers, name, queue, message.stored_ms),
        holders=[(each, clients_of({"topic": name, "group": each})) for each in held[:HOLDERS_MAX]],
    )  # fmt: skip


def body_views(message: FoundMessage, chosen: str) -> dict[str, Any]:
    """The body in the chosen view, else in the first one that it has: JSON, text, hexadecimal."""
    texts = {"text": message.text, "json": message.json_text if len(message.body) <= SHOWN_BYTES_MAX else None}
    view = chosen if chosen in VIEWS else next((each for each in ("json", "text") if texts[each] is not None), "hex")
    shown = dump(message.body[: SHOWN_BYTES_MAX // 4]) if view == "hex" else texts[view]
    is_cut = len(message.body) > (SHOWN_BYTES_MAX // 4 if view == "hex" else SHOWN_BYTES_MAX)
    text = None if shown is None else visible(shown[:SHOWN_BYTES_MAX] if view != "hex" else shown)
    return {"view": view, "views": VIEWS, "is_cut": is_cut, "shown": text}


@resource("/topics/<name>/messages/<int:queue>/<int:offset>/body", role=Role.OWNER)
def body(name: str, queue: int, offset: int) -> ResponseReturnValue:
    """The body as a file, which no browser shows."""
    message = _one(name, queue, offset)
    disposition = f'attachment; filename="message-{queue}-{offset}.bin"'
    return Response(message.body, mimetype="application/octet-stream", headers={"Content-Disposition": disposition})


@action("/topics/<name>/messages", role=Role.OWNER, said="The message was sent and stored; this is it.")
def send(name: str) -> ResponseReturnValue:
    """Send a test message through a producer proxy."""
    check_topic(name)
    text, key = form().get("body", ""), form().get("key", "").strip()[:256]
    data = text.replace("\r\n", "\n").encode(errors="replace")
    asked = dict.fromkeys(FIELDS, "")
    page: dict[str, Any] = {"name": name, "asked": asked, "found": None, "limit": LIMIT, "body": text, "key": key}
    if not 1 <= len(data) <= TRIAL_BYTES_MAX:
        fault = f"Write a body of 1 to {TRIAL_BYTES_MAX:,} bytes."
        return render_template("messages/messages.html", **page, send_fault=fault, fault=""), 422
    faults = [] if form().get("unfit") == "on" else _schema_faults(name, data)
    if faults:
        return render_template("messages/messages.html", **page, schema_faults=faults, fault=""), 422
    try:
        result = parts().trial.send(account().name, name, data, key)
    except PenstockError as error:
        return render_template("messages/messages.html", **page, send_fault=f"It was not sent: {error}", fault=""), 503
    if result.code >= 100:
        fault = f"It was not stored: {result.error or 'no reason was given'} (code {result.code})."
        return render_template("messages/messages.html", **page, send_fault=fault, fault=""), 409
    new = {"id": result.id, "queue": result.queue, "offset": result.offset, "bytes": len(data)}
    parts().log.note(actor(), "send test message", f"topic {name}", None, new)
    if result.queue is None or result.offset is None:
        return redirect(f"/topics/{name}/messages?by=id&id={result.id}", 303)
    return redirect(with_said(f"/topics/{name}/messages/{result.queue}/{result.offset}"), 303)


def _schema_faults(name: str, body: bytes) -> list[str]:
    """Rules of the topic's JSON schema that a body violates, or why they were not checked. Empty without a schema."""
    schema = notes_of(parts().database, name).body_schema
    if not schema:
        return []
    found = body_check(schema, body.decode(errors="replace"))
    return [found.schema_fault] if found.schema_fault else list(found.body_faults)


def check_topic(name: str) -> None:
    """Raises NotFound, and Forbidden for an account that may not read the topic's messages."""
    if not is_name(name) or parts().configuration.topic(name) is None:
        raise NotFound(f"There is no topic {name[:249]}.")
    if not may_use_topic(name):
        raise Forbidden(NOT_YOURS)


def _one(name: str, queue: int, offset: int) -> FoundMessage:
    check_topic(name)
    found = None
    if queue < QUEUE_MAX and offset <= OFFSET_MAX:
        try:
            found = parts().messages.one(name, queue, offset)
        except AdminError as error:
            raise NotFound(f"The engine has no such message: {error}") from error
        except (LinkError, OSError) as error:
            raise LinkError(f"The engine does not answer: {error}") from error
    if found is None:
        raise NotFound(f"Queue {queue} of topic {name} has no message at offset {offset:,} (any more).")
    return mask(name).of(found)
