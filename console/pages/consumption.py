"""Requests for consumption: the form with its check, and the filter tried on stored messages of the topics."""

from collections.abc import Mapping
from typing import Any

from flask import redirect, render_template, request
from flask.typing import ResponseReturnValue

from common.errors import PenstockError
from common.names import is_name
from console.asking.consumption_wish import (
    DEFAULTS,
    FIELDS,
    filter_fault,
    group_name_fault,
    parse_consumption,
    topics_fault,
    topics_of,
)
from console.asking.filter_trial import FilterTrial
from console.database.user_requests import CONSUMPTION, DRAFT, REQUESTED
from console.errors import InvalidForm
from console.installation.group_use import use_of_group
from console.pages.asking_teams import chosen_team, needed_team, prefix_fault, team_choices
from console.pages.messages import FAILURES, NO_SEARCH, NOT_YOURS
from console.pages.part_page import part_or_page
from console.pages.requests import approve_by_policy, consumption_reasons
from console.parts import actor, form, mask, may_use_topic, parts
from console.roles import Role
from console.routes import action, page

TRIED_TOPICS_MAX, TRIED_MESSAGES_MAX = 5, 20
BODY_CHARS_MAX = 120


@page(
    "/consumption/new", role=Role.OWNER, sample="/consumption/new?name=mailing&topics=orders.created&application=shop"
)
def form_page() -> ResponseReturnValue:
    """The empty form."""
    given = {name: request.args.get(name, "")[:1_000] for name in ("name", "topics", "application")}
    return _form_page({**DEFAULTS, **given}, {})


def _form_page(values: Mapping[str, str], faults: Mapping[str, str], status: int = 200) -> ResponseReturnValue:
    values, choices = team_choices(values)
    shown = {
        "values": values,
        "faults": faults,
        "team_choices": choices,
        "preview": _preview(values),
        "trial": None,
        "fields": FIELDS,
    }
    return render_template("requests/consumption_form.html", **shown), status


@action("/consumption/check", role=Role.OWNER)
def check() -> ResponseReturnValue:
    """The part of the form that says what is wrong, what the application gets, and who decides. Nothing is stored."""
    return render_template("requests/consumption_preview.html", preview=_preview(form()))


@action("/consumption/try", role=Role.OWNER)
def try_filter() -> ResponseReturnValue:
    """The filter on the newest messages of the topics. Nothing is leased, and no group moves."""
    trial = _trial(topics_of(form().get("topics", "")), form().get("filter", "").strip())
    return part_or_page("requests/filter_trial.html", "The filter, tried", "/requests", trial=trial)


@action("/consumption", role=Role.OWNER)
def ask() -> ResponseReturnValue:
    """Store a request. Within the policy it is approved at once."""
    values = {name: form().get(name, "") for name in DEFAULTS}
    is_draft = form().get("action") == DRAFT
    try:
        made = store_consumption(values, is_draft)
    except InvalidForm as error:
        return _form_page(values, error.faults, 422)
    return redirect(f"/requests/{made}", 303)


def store_consumption(values: Mapping[str, str], is_draft: bool) -> int:
    """Store a request from the fields of its form, and return its number. Raises InvalidForm."""
    wish, team = parse_consumption(values), needed_team(values)
    found = {
        "name": _taken(wish.name) or prefix_fault(wish.name, team) or _in_use(wish.name),
        "application": application_fault(wish.application),
        "topics": unknown_fault(wish.topics),
    }
    if faults := {field: fault for field, fault in found.items() if fault}:
        raise InvalidForm(faults)
    state = DRAFT if is_draft else REQUESTED
    made = parts().requests.add(actor(), team.id, wish.to_value(), wish.settings(), state, CONSUMPTION)
    if not is_draft:
        approve_by_policy(made)
    return made


def _taken(name: str) -> str:
    return f"Group {name} exists already." if parts().configuration.group(name) is not None else ""


def _in_use(name: str) -> str:
    """A definition would change a group that an application pulls as already."""
    is_used, _ = use_of_group(parts().brokers, name)
    return f"Group {name} is pulled already, without a definition: choose another name." if is_used else ""


def application_fault(name: str) -> str:
    """Why this is no application; empty: it is one."""
    if is_name(name) and parts().configuration.application(name) is not None:
        return ""
    return f"There is no application {name[:80]}: an operator makes it first."


def unknown_fault(topics: tuple[str, ...]) -> str:
    """Which of these are no topics; empty: all are."""
    unknown = [each for each in topics if parts().configuration.topic(each) is None]
    return f"There is no topic {', '.join(unknown[:5])}{' …' if len(unknown) > 5 else ''}." if unknown else ""


def _preview(values: Mapping[str, str]) -> dict[str, Any]:
    """The checks, what the application gets and the policy's answer, for a form that may be half filled in."""
    name, topics = values.get("name", "").strip(), topics_of(values.get("topics", ""))
    fault = group_name_fault(name) or _taken(name) if name else ""
    shown: dict[str, Any] = {"name": name, "name_fault": fault, "faults": {}, "wish": None, "topics": []}
    if topics and not topics_fault(topics):
        shown["topics"] = [(each, _told_of_topic(each)) for each in topics]
    try:
        wish = parse_consumption({**values, "description": values.get("description", "").strip() or "-"})
    except InvalidForm as error:
        shown["faults"] = {field: text for field, text in error.faults.items() if field != "name"}
        return shown
    checks = {"application": application_fault(wish.application), "topics": unknown_fault(wish.topics)}
    shown["faults"] = {field: text for field, text in checks.items() if text}
    team = chosen_team(values)
    if team is not None and not fault:
        shown["name_fault"] = prefix_fault(name, team)
    return {**shown, "wish": wish, "reasons": consumption_reasons(wish, team.id if team is not None else 0)}


def _told_of_topic(name: str) -> str:
    """The owner of a topic, in words; empty: there is no such topic."""
    if parts().configuration.topic(name) is None:
        return ""
    owner = parts().requests.owner_of(name)
    return f"of team {owner[1]}" if owner is not None else "of no team"


def _trial(topics: tuple[str, ...], text: str) -> dict[str, Any]:
    """Values for the part of the page with the trial: per topic its messages, or why they are not tried."""
    fault = topics_fault(topics) or (
        filter_fault(text) if text else "Give a filter to try: without one all messages match."
    )
    if fault:
        return {"fault": fault, "topics": []}
    tried = FilterTrial(text)
    found = [_tried_topic(each, tried) for each in topics[:TRIED_TOPICS_MAX]]
    shown = {"meaning": tried.meaning, "has_more": tried.has_more, "left_out": topics[TRIED_TOPICS_MAX:]}
    return {"fault": "", "topics": found, **shown}


def _tried_topic(name: str, tried: FilterTrial) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "fault": "", "rows": [], "matching": 0}
    if parts().configuration.topic(name) is None:
        return {**row, "fault": "There is no such topic."}
    hidden = mask(name)
    if not may_use_topic(name):
        return {**row, "fault": NOT_YOURS}
    if hidden.hides_search:
        return {**row, "fault": NO_SEARCH.partition(":")[0] + ": a filter would tell what is hidden."}
    try:
        sampled = parts().messages.newest(name, TRIED_MESSAGES_MAX)
    except (PenstockError, *FAILURES) as error:
        return {**row, "fault": f"The messages cannot be read now: {error}"}
    rows: list[dict[str, Any]] = []
    for stored, message in sampled:
        outcome = tried.of(stored.message, message.key or None, message.tag or None, message.properties)
        body = hidden.of(message).text
        rows.append({"message": message, "tried": outcome, "body": None if body is None else body[:BODY_CHARS_MAX]})
    return {**row, "rows": rows, "matching": sum(each["tried"].passes for each in rows)}
