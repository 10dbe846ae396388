"""Requests for topics: the form with its check and preview."""

from collections.abc import Mapping
from typing import Any

from flask import redirect, render_template, request
from flask.typing import ResponseReturnValue

from common.config.text_values import ENGINE_HOME
from console.asking.disk_use import disk_use
from console.asking.message_schema import schema_fault
from console.asking.topic_wish import DEFAULTS, FIELDS, TopicWish, name_fault, parse_wish
from console.database.user_requests import DRAFT, REQUESTED
from console.errors import InvalidForm
from console.pages.asking_teams import chosen_team, needed_team, prefix_fault, team_choices
from console.pages.map import kafka_clusters
from console.pages.requests import approve_by_policy
from console.parts import actor, form, parts
from console.roles import Role
from console.routes import action, page


@page("/requests/new", role=Role.OWNER, title="Ask for a topic")
def form_page() -> ResponseReturnValue:
    """The empty form."""
    return _form_page({**DEFAULTS, "name": request.args.get("name", "")[:249]}, {})


def _form_page(values: Mapping[str, str], faults: Mapping[str, str], status: int = 200) -> ResponseReturnValue:
    values, choices = team_choices(values)
    shown = {"values": values, "faults": faults, "team_choices": choices, "preview": _preview(values), "homes": homes()}
    shown |= {"group_names": group_names(), "fields": FIELDS}
    return render_template("requests/request_form.html", **shown), status


@action("/requests/check", role=Role.OWNER)
def check() -> ResponseReturnValue:
    """The part of the form that says what the wish costs and which fields are wrong. Nothing is stored."""
    return render_template("requests/request_preview.html", preview=_preview(form()))


@action("/requests", role=Role.OWNER)
def ask() -> ResponseReturnValue:
    """Store a request. Within the policy it is approved at once."""
    values = {name: form().get(name, "") for name in DEFAULTS}
    is_draft = form().get("action") == DRAFT
    try:
        made = store_request(values, is_draft)
    except InvalidForm as error:
        return _form_page(values, error.faults, 422)
    return redirect(f"/requests/{made}", 303)


def store_request(values: Mapping[str, str], is_draft: bool) -> int:
    """Store a request from the fields of its form, and return its number. Raises InvalidForm."""
    wish, team = parse_wish(values), needed_team(values)
    found = {
        "name": _taken(wish.name) or prefix_fault(wish.name, team),
        "home": _home_fault(wish),
        "broker_groups": _groups_fault(wish),
        "body_schema": schema_fault(wish.body_schema),
    }
    if faults := {field: fault for field, fault in found.items() if fault}:
        raise InvalidForm(faults)
    state = DRAFT if is_draft else REQUESTED
    made = parts().requests.add(actor(), team.id, wish.to_value(), wish.settings(), state)
    if not is_draft:
        approve_by_policy(made)
    return made


def _taken(name: str) -> str:
    return f"Topic {name} exists already." if parts().configuration.has_topic(name) else ""


def homes() -> list[tuple[str, str]]:
    """The choices of a home: the engine, and the Kafka clusters of the configuration."""
    clusters = [(f"kafka:{name}", f"the Kafka cluster {name}, where it exists already") for name in kafka_clusters()]
    return [(ENGINE_HOME, "the engine"), *clusters]


def _home_fault(wish: TopicWish) -> str:
    cluster = wish.kafka_cluster
    known = cluster is None or parts().configuration.view.kafka_cluster(cluster) is not None
    return "" if known else f"There is no Kafka cluster {cluster} in the configuration."


def group_names() -> list[str]:
    """The broker groups of the configuration, where a topic can be placed."""
    return [each.name for each in parts().configuration.view.broker_groups()]


def _groups_fault(wish: TopicWish) -> str:
    unknown = [each for each in wish.group_names if each not in group_names()]
    return f"There is no broker group {unknown[0]}." if unknown else ""


def _preview(values: Mapping[str, str]) -> dict[str, Any]:
    """The name's check, all faults, the cost and the policy's answer, for a form that may be half filled in."""
    name = values.get("name", "").strip()
    fault = name_fault(name) or _taken(name) if name else ""
    shown: dict[str, Any] = {"name": name, "name_fault": fault, "faults": {}, "wish": None}
    try:
        wish = parse_wish({**values, "description": values.get("description", "").strip() or "-"})
    except InvalidForm as error:
        shown["faults"] = {field: text for field, text in error.faults.items() if field != "name"}
        return shown
    checks = {
        "home": _home_fault(wish),
        "broker_groups": _groups_fault(wish),
        "body_schema": schema_fault(wish.body_schema),
    }
    shown["faults"] = {field: text for field, text in checks.items() if text}
    team = chosen_team(values)
    if team is not None and not fault:
        shown["name_fault"] = prefix_fault(name, team)
    topics = len(parts().requests.topics_of([team.id])) if team is not None else 0
    reasons = parts().policy()[0].reasons(wish, topics)
    reasons += parts().quota_check.excess_of_wish(team.id, wish) if team is not None else []
    return {**shown, "wish": wish, "use": disk_use(wish), "reasons": reasons}
