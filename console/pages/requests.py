"""Requests for topics: the form with its check and preview, the list, one request with its decisions."""

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import Forbidden, NotFound

from common.config.errors import ConfigError
from console.asking.disk_use import disk_use
from console.asking.topic_approval import POLICY
from console.asking.topic_change import ChangedSetting, compared
from console.asking.topic_wish import DEFAULTS, TopicWish, name_fault, parse_wish
from console.database.accounts import Team
from console.database.topic_requests import (
    APPLIED,
    APPROVED,
    DRAFT,
    OPEN,
    REJECTED,
    REQUESTED,
    TEXT_CHARS_MAX,
    WITHDRAWN,
    TopicRequest,
)
from console.errors import InvalidForm
from console.installation.processes import AppliedState, applied_states
from console.parts import account, actor, form, parts
from console.roles import Role
from console.shown import label, setting

blueprint = Blueprint("requests", __name__)
PAGE = 50
REASON_NEEDED = "Say why: the person who asked reads it."


@blueprint.get("/requests")
def index() -> ResponseReturnValue:
    """Requests, newest first."""
    state, before = request.args.get("state", "open"), request.args.get("before", "")
    states = {"open": OPEN, "all": ()}.get(state, (state,))
    before_id = int(before) if before.isascii() and before.isdigit() and len(before) < 16 else 0
    rows = parts().requests.list(states, before_id=before_id, limit=PAGE)
    following = rows[-1].id if len(rows) == PAGE else 0
    return render_template("requests.html", rows=rows, state=state, following=following)


@blueprint.get("/requests/new", endpoint="form")
def form_page() -> ResponseReturnValue:
    """The empty form."""
    return _form_page({**DEFAULTS, "name": request.args.get("name", "")[:249]}, {})


def _form_page(values: Mapping[str, str], faults: Mapping[str, str], status: int = 200) -> ResponseReturnValue:
    teams = _teams()
    choices = [("", "Choose a team")] if len(teams) > 1 else []
    choices += [(str(team.id), team.name) for team in teams]
    if len(teams) == 1:
        values = {**values, "team": str(teams[0].id)}
    shown = {"values": values, "faults": faults, "teams": teams, "team_choices": choices, "preview": _preview(values)}
    return render_template("request_form.html", **shown), status


@blueprint.post("/requests/check")
def check() -> ResponseReturnValue:
    """The part of the form that says what the wish costs and which fields are wrong. Nothing is stored."""
    return render_template("request_preview.html", preview=_preview(form()))


@blueprint.post("/requests")
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
    wish, team = parse_wish(values), _team(values)
    if fault := _taken(wish.name) or _prefix_fault(wish.name, team):
        raise InvalidForm({"name": fault})
    state = DRAFT if is_draft else REQUESTED
    made = parts().requests.add(actor(), team.id, wish.to_value(), wish.settings(), state)
    if not is_draft:
        _approve_by_policy(made, 1, wish, team)
    return made


def _approve_by_policy(request_id: int, version: int, wish: TopicWish, team: Team) -> None:
    policy, _ = parts().policy()
    if policy.reasons(wish, len(parts().requests.topics_of([team.id]))):
        return
    try:
        parts().approval.approve(POLICY, request_id, version, "Within the policy: no person has to decide.")
    except ConfigError:
        pass  # the request's page shows the problem, and the keeper tries again


@blueprint.get("/requests/<int:request_id>")
def show(request_id: int) -> ResponseReturnValue:
    """One request."""
    return _page(found_request(request_id))


def _page(found: TopicRequest, fault: str = "", status: int = 200) -> ResponseReturnValue:
    wish = TopicWish(**found.asked) if found.base_version is None else None
    own = account()
    is_party = own.role >= Role.OPERATOR or own.is_in(found.team_id) or own.name == found.asker
    return render_template(
        "request.html", found=found, wish=wish, use=disk_use(wish) if wish is not None else None, events=parts().requests.events(found.id),
        settings=[(label(name), setting(name, value)) for name, value in found.settings.items()],
        is_asker=own.name == found.asker,
        change=comparison(found) if wish is None else None, may_decide=own.role >= Role.OPERATOR, applied=_applied(found), fault=fault,
        may_comment=own.role >= Role.OWNER and is_party,
    ), status  # fmt: skip


def comparison(found: TopicRequest) -> tuple[list[ChangedSetting], bool]:
    """The rows of a request for a change, and whether the topic has changed since it was asked for."""
    shown = parts().configuration.topic(found.topic)
    now = shown.definition.to_value() if shown is not None else None
    base = found.base or {}
    if found.state not in OPEN:
        return compared(base, base, found.settings), False
    is_moved = shown is not None and shown.version is not None and shown.version != found.base_version
    return compared(base, now if is_moved else base, found.settings), is_moved


@blueprint.get("/requests/<int:request_id>/applied")
def applied(request_id: int) -> ResponseReturnValue:
    """The part of the page that says which processes have applied the topic."""
    found = found_request(request_id)
    return render_template("request_applied.html", found=found, applied=_applied(found))


def _applied(found: TopicRequest) -> list[AppliedState] | None:
    """None: nothing is written yet, or the store is away."""
    if found.state != APPLIED or found.kind_version is None:
        return None
    try:
        return applied_states(parts().configuration.store, "topic", found.kind_version)
    except ConfigError:
        return None


@blueprint.post("/requests/<int:request_id>/comment")
def comment(request_id: int) -> ResponseReturnValue:
    """Add a comment: of the one who asked, the team, or an operator."""
    comment_on(request_id, form().get("text", "").strip())
    return redirect(f"/requests/{request_id}#events", 303)


def comment_on(request_id: int, text: str) -> None:
    """Add a comment. Raises Forbidden, InvalidForm."""
    found, own = found_request(request_id), account()
    if not (own.role >= Role.OPERATOR or own.is_in(found.team_id) or own.name == found.asker):
        raise Forbidden("Only the one who asked, the team and operators comment on a request.")
    parts().requests.comment(actor(), request_id, text)


@blueprint.post("/requests/<int:request_id>/submit")
def submit(request_id: int) -> ResponseReturnValue:
    """Hand in a draft."""
    submit_draft(request_id, _seen())
    return redirect(f"/requests/{request_id}", 303)


def submit_draft(request_id: int, seen: int) -> None:
    """Hand in an own draft that has the version `seen`. Raises RequestConflict."""
    found = _own(request_id)
    wish = TopicWish(**found.asked)
    parts().requests.move(actor(), request_id, (DRAFT, seen), REQUESTED)
    team = Team(found.team_id, found.team, "")
    _approve_by_policy(request_id, seen + 1, wish, team)


@blueprint.post("/requests/<int:request_id>/withdraw")
def withdraw(request_id: int) -> ResponseReturnValue:
    """Take a request back that is not approved yet."""
    withdraw_request(request_id, _seen())
    return redirect(f"/requests/{request_id}", 303)


def withdraw_request(request_id: int, seen: int) -> None:
    """Withdraw an own request that has the version `seen`. Raises RequestConflict."""
    found = _own(request_id)
    state = found.state if found.state in (DRAFT, REQUESTED) else REQUESTED
    parts().requests.move(actor(), request_id, (state, seen), WITHDRAWN)


@blueprint.post("/requests/<int:request_id>/approve")
def approve(request_id: int) -> ResponseReturnValue:
    """Approve, and write the topic."""
    found = found_request(request_id)
    try:
        parts().approval.approve(actor(), request_id, _seen(), form().get("reason", "").strip()[:TEXT_CHARS_MAX])
    except ConfigError as error:
        return _page(found_request(found.id), f"It is approved, but not applied yet: {error}", 503)
    return redirect(f"/requests/{request_id}", 303)


@blueprint.post("/requests/<int:request_id>/reject")
def reject(request_id: int) -> ResponseReturnValue:
    """Reject a request that waits, or one that cannot be applied, with a reason."""
    reason = form().get("reason", "").strip()[:TEXT_CHARS_MAX]
    found = found_request(request_id)
    if not reason:
        return _page(found, REASON_NEEDED, 422)
    reject_request(request_id, _seen(), reason)
    return redirect(f"/requests/{request_id}", 303)


def reject_request(request_id: int, seen: int, reason: str) -> None:
    """Reject a request that has the version `seen`. Raises RequestConflict, InvalidForm."""
    found = found_request(request_id)
    if not reason:
        raise InvalidForm({"reason": REASON_NEEDED})
    # An approved one may be written at this moment; with a problem it was tried, and is not written.
    state = APPROVED if found.state == APPROVED and found.problem else REQUESTED
    parts().requests.move(actor(), request_id, (state, seen), REJECTED, reason)


@blueprint.post("/requests/<int:request_id>/retry")
def retry(request_id: int) -> ResponseReturnValue:
    """Try again to write the topic of an approved request."""
    try:
        parts().approval.apply(actor(), request_id)
    except ConfigError as error:
        return _page(found_request(request_id), f"It is not applied: {error}", 503)
    return redirect(f"/requests/{request_id}", 303)


def found_request(request_id: int) -> TopicRequest:
    """The request. Raises NotFound."""
    found = parts().requests.get(request_id)
    if found is None:
        raise NotFound(f"There is no request {request_id}.")
    return found


def _own(request_id: int) -> TopicRequest:
    found = found_request(request_id)
    if found.asker != account().name:
        raise Forbidden("Only the one who asked can do this.")
    return found


def _seen() -> int:
    """The version of the request that the form was made from."""
    text = form().get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _teams() -> list[Team]:
    """The teams that the account may ask for."""
    return parts().accounts.teams() if account().role >= Role.OPERATOR else list(account().teams)


def _team(values: Mapping[str, str]) -> Team:
    found = next((team for team in _teams() if str(team.id) == values.get("team", "")), None)
    if found is None:
        raise InvalidForm({"team": "Choose one of your teams."})
    return found


def _taken(name: str) -> str:
    return f"Topic {name} exists already." if parts().configuration.has_topic(name) else ""


def _prefix_fault(name: str, team: Team) -> str:
    return "" if name.startswith(team.prefix) else f"Names of team {team.name} begin with {team.prefix}."


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
    team = next((each for each in _teams() if str(each.id) == values.get("team", "")), None)
    if team is not None and not fault:
        shown["name_fault"] = _prefix_fault(name, team)
    topics = len(parts().requests.topics_of([team.id])) if team is not None else 0
    reasons = parts().policy()[0].reasons(wish, topics)
    return {**shown, "wish": wish, "use": disk_use(wish), "reasons": reasons}
