"""Requests for topics and for consumption: the list, one request with its decisions."""

from collections.abc import Iterable
from typing import Any

from flask import redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import Forbidden, NotFound

from common.config.definition import Definition
from common.config.definitions import GroupDefinition, TopicDefinition
from common.config.errors import ConfigError
from console.asking.consumption_wish import ConsumptionWish
from console.asking.consumption_writing import ADDED
from console.asking.disk_use import disk_use
from console.asking.message_schema import difference
from console.asking.request_approval import POLICY
from console.asking.topic_change import ChangedSetting, compared
from console.asking.topic_wish import TopicWish
from console.database.topic_notes import SCHEMA, SCHEMA_BASE, notes_of
from console.database.user_requests import (
    APPLIED,
    APPROVED,
    CONSUMPTION,
    DRAFT,
    OPEN,
    REJECTED,
    REQUESTED,
    TEXT_CHARS_MAX,
    WITHDRAWN,
    UserRequest,
)
from console.errors import InvalidForm, RequestConflict
from console.installation.group_use import use_of_group
from console.installation.processes import AppliedState, applied_states
from console.parts import account, actor, form, parts
from console.roles import Role
from console.routes import action, page, resource
from console.shown import label, setting

PAGE = 50
REASON_NEEDED = "Say why: the person who asked reads it."


@page("/requests", role=Role.VIEWER, title="Requests", menu=5, sample="/requests?state=all")
def index() -> ResponseReturnValue:
    """Requests, newest first."""
    state, before = request.args.get("state", "open"), request.args.get("before", "")
    states = {"open": OPEN, "all": ()}.get(state, (state,))
    before_id = int(before) if before.isascii() and before.isdigit() and len(before) < 16 else 0
    rows = parts().requests.list(states, before_id=before_id, limit=PAGE)
    following = rows[-1].id if len(rows) == PAGE else 0
    return render_template("requests/requests.html", rows=rows, state=state, following=following)


def approve_by_policy(request_id: int) -> None:
    """Approve a request that was just handed in, where the policy decides without a person."""
    found = found_request(request_id)
    if _reasons(found):
        return
    try:
        check = parts().quota_check.at_approval(found, accepted=False)
        parts().approval.approve(
            POLICY, request_id, found.version, "Within the policy: no person has to decide.", check
        )
    except RequestConflict:
        pass  # another request of the team was approved at this moment: a person decides about this one
    except ConfigError:
        pass  # the request's page shows the problem, and the keeper tries again


def _reasons(found: UserRequest) -> list[str]:
    if found.kind == CONSUMPTION:
        is_used, faults = use_of_group(parts().brokers, found.name)
        used = [f"Group {found.name} is pulled already."] if is_used else []
        return [*used, *faults, *consumption_reasons(ConsumptionWish.from_value(found.asked), found.team_id)]
    policy, _ = parts().policy()
    topics = len(parts().requests.topics_of([found.team_id]))
    return policy.reasons(TopicWish(**found.asked), topics) + parts().quota_check.excess(found)


def consumption_reasons(wish: ConsumptionWish, team_id: int) -> list[str]:
    """Why a person has to decide on a request for consumption; empty: nobody has to."""
    policy, _ = parts().policy()
    owners = {each: parts().requests.owner_of(each) for each in wish.topics}
    others = [each for each, owner in owners.items() if owner is None or owner[0] != team_id]
    return policy.reasons_of_consumption(wish, len(parts().requests.groups_of([team_id])), others)


@page("/requests/<int:request_id>", role=Role.VIEWER, sample=("/requests/1", "/requests/3", "/requests/4"))
def show(request_id: int) -> ResponseReturnValue:
    """One request."""
    return _page(found_request(request_id))


def _page(found: UserRequest, fault: str = "", status: int = 200) -> ResponseReturnValue:
    own = account()
    excess = parts().quota_check.excess(found) if found.state == REQUESTED else []
    is_party = own.role >= Role.OPERATOR or own.is_in(found.team_id) or own.name == found.asker
    return render_template(
        "requests/request.html", found=found, **_asked(found), events=parts().requests.events(found.id),
        settings=[(label(name), setting(name, value)) for name, value in found.settings.items()],
        is_asker=own.name == found.asker, may_decide=own.role >= Role.OPERATOR, applied=_applied(found), fault=fault,
        may_comment=own.role >= Role.OWNER and is_party, path=_path(found), excess=excess,
    ), status  # fmt: skip


def _asked(found: UserRequest) -> dict[str, Any]:
    """What was asked for, as the part of the page for its kind shows it."""
    if found.base_version is not None:
        lines = difference(found.asked[SCHEMA_BASE], found.asked[SCHEMA]) if SCHEMA_BASE in found.asked else []
        return {
            "part": "requests/request_change.html",
            "change": comparison(found),
            "schema_lines": lines,
            "owners": _owners(found.asked.get(ADDED, ())),
        }
    if found.kind == CONSUMPTION:
        wish = ConsumptionWish.from_value(found.asked)
        return {"part": "requests/request_consumption.html", "wish": wish, "owners": _owners(wish.topics)}
    topic = TopicWish(**found.asked)
    return {"part": "requests/request_topic.html", "wish": topic, "use": disk_use(topic)}


def _owners(topics: Iterable[str]) -> list[tuple[str, tuple[int, str, str] | None]]:
    return [(each, parts().requests.owner_of(each)) for each in topics]


def _path(found: UserRequest) -> str:
    """The page of what was written."""
    return f"/{'groups' if found.kind == CONSUMPTION else 'topics'}/{found.name}"


def comparison(found: UserRequest) -> tuple[list[ChangedSetting], bool]:
    """The rows of a request for a change, and whether its topic or group has changed since it was asked for."""
    of: type[Definition] = GroupDefinition if found.kind == CONSUMPTION else TopicDefinition
    configuration = parts().configuration
    shown = configuration.group(found.name) if found.kind == CONSUMPTION else configuration.topic(found.name)
    now = shown.definition.to_value() if shown is not None else None
    base = found.base or {}
    if found.state not in OPEN:
        return compared(base, base, found.settings, of), False
    is_moved = shown is not None and shown.version is not None and shown.version != found.base_version
    return compared(base, now if is_moved else base, found.settings, of), is_moved or _is_schema_moved(found)


def _is_schema_moved(found: UserRequest) -> bool:
    base = found.asked.get(SCHEMA_BASE)
    return base is not None and base != notes_of(parts().database, found.name).body_schema


@resource("/requests/<int:request_id>/applied", role=Role.VIEWER)
def applied(request_id: int) -> ResponseReturnValue:
    """The part of the page that says which processes have applied what was written."""
    found = found_request(request_id)
    return render_template("requests/request_applied.html", found=found, applied=_applied(found), path=_path(found))


def _applied(found: UserRequest) -> list[AppliedState] | None:
    """None: nothing is written yet, or the store is away."""
    if found.state != APPLIED or found.kind_versions is None:
        return None
    try:
        return applied_states(parts().configuration.store, found.kind_versions)
    except ConfigError:
        return None


@action("/requests/<int:request_id>/comment", role=Role.OWNER)
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


@action("/requests/<int:request_id>/submit", role=Role.OWNER)
def submit(request_id: int) -> ResponseReturnValue:
    """Hand in a draft."""
    submit_draft(request_id, _seen())
    return redirect(f"/requests/{request_id}", 303)


def submit_draft(request_id: int, seen: int) -> None:
    """Hand in an own draft that has the version `seen`. Raises RequestConflict."""
    _own(request_id)
    parts().requests.move(actor(), request_id, (DRAFT, seen), REQUESTED)
    approve_by_policy(request_id)


@action("/requests/<int:request_id>/withdraw", role=Role.OWNER)
def withdraw(request_id: int) -> ResponseReturnValue:
    """Take a request back that is not approved yet."""
    withdraw_request(request_id, _seen())
    return redirect(f"/requests/{request_id}", 303)


def withdraw_request(request_id: int, seen: int) -> None:
    """Withdraw an own request that has the version `seen`. Raises RequestConflict."""
    found = _own(request_id)
    state = found.state if found.state in (DRAFT, REQUESTED) else REQUESTED
    parts().requests.move(actor(), request_id, (state, seen), WITHDRAWN)


@action("/requests/<int:request_id>/approve", role=Role.OPERATOR)
def approve(request_id: int) -> ResponseReturnValue:
    """Approve, and write what was asked for."""
    found = found_request(request_id)
    reason = form().get("reason", "").strip()[:TEXT_CHARS_MAX]
    try:
        approve_request(found, _seen(), reason, form().get("beyond_quota") == "on")
    except ConfigError as error:
        return _page(found_request(found.id), f"It is approved, but not applied yet: {error}", 503)
    return redirect(f"/requests/{request_id}", 303)


def approve_request(found: UserRequest, seen: int, reason: str, beyond_quota: bool) -> None:
    """Approve a request that has the version `seen`.

    Args:
        beyond_quota: the operator has seen that the team passes its quota; the history says by how much.
    Raises:
        RequestConflict: somebody was faster, or the quota is passed and `beyond_quota` does not say so. ConfigError.
    """
    excess = parts().quota_check.excess(found) if beyond_quota else []
    said = " ".join(filter(None, (reason, f"Beyond the quota: {' '.join(excess)}" if excess else "")))
    check = parts().quota_check.at_approval(found, beyond_quota)
    parts().approval.approve(actor(), found.id, seen, said[:TEXT_CHARS_MAX], check)


@action("/requests/<int:request_id>/reject", role=Role.OPERATOR)
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


@action("/requests/<int:request_id>/retry", role=Role.OPERATOR)
def retry(request_id: int) -> ResponseReturnValue:
    """Try again to write what an approved request asks for."""
    try:
        parts().approval.apply(actor(), request_id)
    except ConfigError as error:
        return _page(found_request(request_id), f"It is not applied: {error}", 503)
    return redirect(f"/requests/{request_id}", 303)


def found_request(request_id: int) -> UserRequest:
    """The request. Raises NotFound."""
    found = parts().requests.get(request_id)
    if found is None:
        raise NotFound(f"There is no request {request_id}.")
    return found


def _own(request_id: int) -> UserRequest:
    found = found_request(request_id)
    if found.asker != account().name:
        raise Forbidden("Only the one who asked can do this.")
    return found


def _seen() -> int:
    """The version of the request that the form was made from."""
    text = form().get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
