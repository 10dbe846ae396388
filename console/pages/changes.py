"""Requests for a change of a topic: the form over the present settings, and a new base when the topic has changed since."""

from collections.abc import Mapping
from typing import Any

from flask import redirect, render_template
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import Forbidden, NotFound

from common.config.definitions import TopicDefinition
from console.asking.message_schema import schema_fault
from console.asking.topic_change import FIELDS, fields_of, parse_change
from console.database.topic_notes import SCHEMA, SCHEMA_BASE, notes_of
from console.database.user_requests import CONSUMPTION, REQUESTED
from console.errors import InvalidForm, RequestConflict
from console.pages.requests import found_request
from console.parts import account, actor, form, may_use_topic, parts
from console.roles import Role
from console.routes import action, page

MOVED = "It was changed meanwhile: below are the present settings and what you wanted. Check it, then ask again."


@page("/topics/<name>/change", role=Role.OWNER, sample="/topics/orders.created/change")
def form_page(name: str) -> ResponseReturnValue:
    """The form with the present settings."""
    topic, version = _topic(name)
    return _form_page(topic, version, {**fields_of(topic), SCHEMA: notes_of(parts().database, name).body_schema}, {})


def _form_page(
    topic: TopicDefinition, version: int, values: Mapping[str, str], faults: Mapping[str, str], status: int = 200
) -> ResponseReturnValue:
    present = fields_of(topic)
    shown = {"values": values, "faults": faults, "version": version, "present": present, "fields": FIELDS}
    return render_template("topics/change_form.html", topic=topic, **shown), status


@action("/topics/<name>/change", role=Role.OWNER)
def ask(name: str) -> ResponseReturnValue:
    """Store a request for the change, unless the topic has changed since the form was made."""
    topic, version = _topic(name)
    fields = form()
    if fields.get("version") != str(version):
        return _form_page(topic, version, fields, {"": MOVED}, 409)
    try:
        wanted, more = parse_change(fields, topic, notes_of(parts().database, name).body_schema)
        if fault := schema_fault(more.get(SCHEMA, "")):
            raise InvalidForm({SCHEMA: fault})
        team_id = team_of_change(parts().requests.owner_of(name))
        reason = " ".join(fields.get("reason", "").split())
        base = (topic.to_value(), version)
        made = parts().requests.add_change(actor(), team_id, name, reason, base, wanted, more=more)
    except InvalidForm as error:
        return _form_page(topic, version, fields, error.faults, 422)
    return redirect(f"/requests/{made}", 303)


@action("/requests/<int:request_id>/rebase", role=Role.OWNER)
def rebase(request_id: int) -> ResponseReturnValue:
    """Keep what is wanted, and take the present settings as what it changes."""
    found = found_request(request_id)
    if found.asker != account().name and account().role < Role.OPERATOR:
        raise Forbidden("Only the one who asked and operators do this.")
    if found.base_version is None:
        raise RequestConflict("This request is for no change.")
    configuration = parts().configuration
    shown = configuration.group(found.name) if found.kind == CONSUMPTION else configuration.topic(found.name)
    if shown is None or shown.version is None:
        raise NotFound(f"{found.subject.capitalize()} has no definition that can be read now.")
    text = form().get("version", "")
    seen = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    now: dict[str, Any] = {"base": shown.definition.to_value(), "base_version": shown.version}
    if SCHEMA_BASE in found.asked:
        present = notes_of(parts().database, found.name).body_schema
        now["asked"] = {**found.asked, SCHEMA_BASE: present}
    parts().requests.move(
        actor(), request_id, (REQUESTED, seen), REQUESTED, "Checked against the present settings.", **now
    )
    return redirect(f"/requests/{request_id}", 303)


def _topic(name: str) -> tuple[TopicDefinition, int]:
    """The topic's own entry. Raises NotFound, Forbidden."""
    found = parts().configuration.topic(name)
    if found is None or not isinstance(found.definition, TopicDefinition) or found.version is None:
        raise NotFound(f"Topic {name[:249]} has no entry of its own that can be read now.")
    if not may_use_topic(name):
        raise Forbidden("Only the team that owns the topic and operators ask for its change.")
    return found.definition, found.version


def team_of_change(owner: tuple[int, str, str] | None) -> int:
    """The team that owns what is changed, else one of the account's. Raises InvalidForm."""
    if owner is not None:
        return owner[0]
    teams = account().teams or tuple(parts().accounts.teams())
    if not teams:
        raise InvalidForm({"": "Create a team first: requests belong to teams."})
    return teams[0].id
