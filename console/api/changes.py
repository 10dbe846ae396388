"""Operations that change something, by the functions of the pages and of `penstock apply`."""

import json
from collections.abc import Mapping
from typing import Any

from flask import request
from werkzeug.exceptions import BadRequest

from common.admin import declared
from common.admin.applications import NewKey
from console.api.operations import ANY, FLAG, TEXT, TEXTS, WHOLE, body, number_of_query, operation, text_of, whole_of
from console.asking.consumption_wish import DEFAULTS as CONSUMPTION_DEFAULTS
from console.asking.team_quota import BOUNDS, TeamQuota
from console.asking.topic_wish import DEFAULTS
from console.database.user_requests import OPEN, TEXT_CHARS_MAX, UserRequest
from console.errors import InvalidForm
from console.pages import (
    application_keys,
    broker_groups,
    connections,
    consumption,
    limits,
    migrations,
    topic_deletion,
    topic_requests,
    traffic,
)
from console.pages import requests as pages
from console.parts import account, actor, parts
from console.roles import Role
from console.watching.alert_rules import NAMES

SEEN = {"version": WHOLE}
ANY_FIELD: dict[str, Any] = {}
NOTED_MAX = 200


def _shown(found: UserRequest) -> dict[str, Any]:
    return vars(found)


@operation(
    "GET",
    "/requests",
    Role.VIEWER,
    "Requests for topics and for consumption, newest first.",
    {"state": TEXT, "before": WHOLE, "limit": WHOLE},
)
def requests() -> Any:
    state = request.args.get("state", "open")
    states = {"open": OPEN, "all": ()}.get(state, (state,))
    before_id, limit = number_of_query("before", 0, 1 << 53), number_of_query("limit", 50, 1_000)
    return {
        "requests": [_shown(each) for each in parts().requests.list(states, before_id=before_id, limit=max(1, limit))]
    }


@operation("GET", "/requests/{request_id}", Role.VIEWER, "One request with its events.")
def request_for_topic(request_id: int) -> Any:
    events = [dict(row._mapping) for row in parts().requests.events(request_id)]
    return {**_shown(pages.found_request(request_id)), "events": events}


@operation("POST", "/requests", Role.OWNER, "Ask for a topic. Fields that are left out have the form's defaults.",
           body={**dict.fromkeys(DEFAULTS, ANY_FIELD), "team": TEXT, "draft": FLAG}, required=["name", "description", "team"])  # fmt: skip
def ask() -> Any:
    values, is_draft = _asked(DEFAULTS)
    return _shown(pages.found_request(topic_requests.store_request(values, is_draft)))


@operation("POST", "/requests/consumption", Role.OWNER, "Ask for consumption. Fields that are left out have the form's defaults.",
           body={**dict.fromkeys(CONSUMPTION_DEFAULTS, ANY_FIELD), "team": TEXT, "draft": FLAG},
           required=["name", "description", "team", "application", "topics"])  # fmt: skip
def ask_consumption() -> Any:
    values, is_draft = _asked(CONSUMPTION_DEFAULTS)
    return _shown(pages.found_request(consumption.store_consumption(values, is_draft)))


def _asked(defaults: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """The fields of a form from the body, and whether it is a draft."""
    given = body()
    unknown = sorted(given.keys() - defaults.keys() - {"draft"})
    if unknown:
        raise BadRequest(f"There is no field {unknown[0][:40]}.")
    values = {name: _field(given.get(name, default)) for name, default in defaults.items()}
    team = next((each for each in parts().accounts.teams() if each.name == values["team"]), None)
    if team is not None:
        values["team"] = str(team.id)
    return values, given.get("draft") is True


def _field(value: Any) -> str:
    """A form's text of a JSON value: that of a ticked box, of a list, of a number."""
    if isinstance(value, bool):
        return "on" if value else ""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "\n".join(value)[:10_000]
    if not isinstance(value, str | int):
        raise BadRequest("Use text or whole numbers as fields.")
    return str(value)[:10_000]


@operation(
    "POST",
    "/requests/{request_id}/comment",
    Role.OWNER,
    "Comment on a request.",
    body={"text": TEXT},
    required=["text"],
)
def comment(request_id: int) -> Any:
    pages.comment_on(request_id, text_of(body(), "text").strip())
    return request_for_topic(request_id)


@operation("POST", "/requests/{request_id}/submit", Role.OWNER, "Hand in a draft.", body=SEEN, required=["version"])
def submit(request_id: int) -> Any:
    pages.submit_draft(request_id, whole_of(body(), "version"))
    return request_for_topic(request_id)


@operation(
    "POST", "/requests/{request_id}/withdraw", Role.OWNER, "Take a request back.", body=SEEN, required=["version"]
)
def withdraw(request_id: int) -> Any:
    pages.withdraw_request(request_id, whole_of(body(), "version"))
    return request_for_topic(request_id)


@operation("POST", "/requests/{request_id}/approve", Role.OPERATOR, "Approve a request, and write the topic.",
           body={**SEEN, "reason": TEXT, "beyond_quota": FLAG}, required=["version"])  # fmt: skip
def approve(request_id: int) -> Any:
    found, given = pages.found_request(request_id), body()
    reason = text_of(given, "reason").strip()[:TEXT_CHARS_MAX]
    pages.approve_request(found, whole_of(given, "version"), reason, given.get("beyond_quota") is True)
    return request_for_topic(request_id)


@operation("POST", "/requests/{request_id}/reject", Role.OPERATOR, "Reject a request with a reason.",
           body={**SEEN, "reason": TEXT}, required=["version", "reason"])  # fmt: skip
def reject(request_id: int) -> Any:
    given = body()
    pages.reject_request(request_id, whole_of(given, "version"), text_of(given, "reason").strip()[:TEXT_CHARS_MAX])
    return request_for_topic(request_id)


@operation("POST", "/broker-groups/{name}/switch", Role.OPERATOR, "Switch the master of a broker group, as its page does.",
           body={"to": TEXT, "master": TEXT}, required=["to", "master"])  # fmt: skip
def switch_master(name: str) -> Any:
    given = body()
    done, warnings = broker_groups.switch_master(name, text_of(given, "to"), text_of(given, "master"))
    return {"master": done.record.master, "epoch": done.record.epoch, "warnings": warnings}


PATTERNS = dict.fromkeys(application_keys.KINDS, TEXTS)


@operation("POST", "/applications", Role.OPERATOR, "Create an application; its secret is in this answer alone.",
           body={"name": TEXT, **PATTERNS}, required=["name"])  # fmt: skip
def make_application() -> Any:
    given = body()
    return _key(application_keys.make_application(text_of(given, "name"), _patterns(given)))


@operation("POST", "/applications/{name}/keys", Role.OPERATOR, "Make a second key; its secret is in this answer alone.")
def make_key(name: str) -> Any:
    return _key(application_keys.add_key(name))


@operation("POST", "/applications/{name}/keys/{key}/revoke", Role.OPERATOR, "Reject a key from now on.")
def revoke_key(name: str, key: str) -> Any:
    application_keys.revoke_key(name, key)
    return {"application": name, "revoked": key}


@operation(
    "POST",
    "/applications/{name}/grants",
    Role.OPERATOR,
    "Add grants, or remove them.",
    body={**PATTERNS, "remove": FLAG},
)
def change_grants(name: str) -> Any:
    given = body()
    application_keys.change_grants(name, _patterns(given), given.get("remove") is True)
    return {"application": name}


def _patterns(given: Mapping[str, Any]) -> dict[str, str]:
    """Patterns by kind, as the form has them. Raises BadRequest."""
    return {kind: _field(given.get(kind, [])) for kind in application_keys.KINDS}


def _key(made: NewKey) -> dict[str, str]:
    return {"application": made.app, "key_id": made.key_id, "secret": made.secret}


@operation("POST", "/topics/{name}/delete", Role.OPERATOR, "Delete a topic, as its page does; `typed` is its name once more.",
           body={"version": WHOLE, "typed": TEXT}, required=["version", "typed"])  # fmt: skip
def delete_topic(name: str) -> Any:
    given = body()
    topic_deletion.delete_topic(name, text_of(given, "typed"), whole_of(given, "version"))
    return {"deleted": name}


@operation("POST", "/quotas/{team_id}", Role.OPERATOR, "Change what the topics of a team may have in all; 0: no bound.",
           body={"version": WHOLE, **dict.fromkeys(BOUNDS, WHOLE)}, required=["version", *BOUNDS])  # fmt: skip
def change_quota(team_id: int) -> Any:
    given = body()
    quota = TeamQuota.from_form({name: str(whole_of(given, name)) for name in BOUNDS})
    parts().quotas.replace(actor(), team_id, quota.to_value(), whole_of(given, "version"))
    return {"team_id": team_id, "quota": quota.to_value()}


@operation("POST", "/connections/{name}/close", Role.OPERATOR, "Close the connection of a client, as its page does.")
def close_connection(name: str) -> Any:
    return {"closed": connections.close_client(name)._asdict()}


@operation("POST", "/limits", Role.OPERATOR, "Change what every producer proxy accepts. Settings that are left out stay.",
           body={"version": WHOLE, **dict.fromkeys((*limits.NUMBERS, *limits.LISTS), ANY_FIELD)}, required=["version"])  # fmt: skip
def change_limits() -> Any:
    given = body()
    unknown = sorted(given.keys() - {"version", *limits.NUMBERS, *limits.LISTS})
    if unknown:
        raise BadRequest(f"There is no field {unknown[0][:40]}.")
    settings = {name: value for name, value in given.items() if name != "version"}
    changed = limits.change_limits(settings, whole_of(given, "version"))
    return {"settings": changed.to_value()}


@operation("POST", "/broker-groups/{name}/writes", Role.OPERATOR,
           "Spare a broker group messages without a key (keyed), or use it again (all).",
           body={"writes": TEXT, "seen": TEXT}, required=["writes", "seen"])  # fmt: skip
def change_writes(name: str) -> Any:
    given = body()
    changed = traffic.change_writes(name, text_of(given, "writes"), text_of(given, "seen"))
    return {"name": changed.name, "writes": changed.writes}


@operation("POST", "/topics/{name}/broker-groups", Role.OPERATOR,
           "Store a topic's new messages in these broker groups; dry_run only previews it.",
           body={"version": WHOLE, "broker_groups": TEXTS, "dry_run": FLAG}, required=["version", "broker_groups"])  # fmt: skip
def move_topic(name: str) -> Any:
    given = body()
    wanted = given.get("broker_groups")
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in wanted):
        raise BadRequest("broker_groups: use a list of names.")
    is_dry, seen = given.get("dry_run") is True, whole_of(given, "version")
    made = traffic.previewed_move(name, wanted, seen) if is_dry else traffic.move_topic(name, wanted, seen)
    return {
        "topic": made.new.to_value(), "added": made.added, "shares": [each._asdict() for each in made.shares],
        "backlogs": dict(made.backlogs), "faults": made.faults, "applied": not is_dry,
    }  # fmt: skip


@operation("POST", "/migrations/{name}/{command}", Role.OPERATOR, "Begin a command of a plan, as its page does.",
           body={"version": WHOLE, "accept": TEXTS}, required=["version"])  # fmt: skip
def begin_migration(name: str, command: str) -> Any:
    given = body()
    accepted = given.get("accept", [])
    if not isinstance(accepted, list) or not all(isinstance(each, str) for each in accepted):
        raise BadRequest("accept: use a list of gates.")
    migrations.begin_command(name, command, accepted, str(whole_of(given, "version")))
    return {"plan": name, "command": command}


@operation("POST", "/alerts/silences", Role.OPERATOR, "Silence alerts for a time.",
           body={"rule": TEXT, "subject": TEXT, "reason": TEXT, "duration_ms": WHOLE},
           required=["rule", "subject", "reason", "duration_ms"])  # fmt: skip
def silence() -> Any:
    given = body()
    rule, subject, reason = (text_of(given, name).strip() for name in ("rule", "subject", "reason"))
    duration_ms = whole_of(given, "duration_ms")
    return {"id": parts().alerts.silence(actor(), rule, subject, reason, duration_ms, NAMES)}


@operation("POST", "/alerts/silences/{silence_id}/end", Role.OPERATOR, "End a silence now.")
def end_silence(silence_id: int) -> Any:
    parts().alerts.end_silence(actor(), silence_id)
    return {"id": silence_id}


@operation("POST", "/apply", Role.OPERATOR, "Create and change topics, families and groups as `penstock apply` does.",
           body={"declared": ANY, "prune": TEXTS, "dry_run": FLAG}, required=["declared"])  # fmt: skip
def apply() -> Any:
    given = body()
    prune = given.get("prune", [])
    if not isinstance(prune, list) or not all(isinstance(each, str) for each in prune):
        raise BadRequest("prune: use a list of KIND/NAME.")
    if not isinstance(given.get("declared"), dict):
        raise BadRequest("declared: use the sections of `penstock export`.")
    wanted = declared.parse(json.dumps(given["declared"]), "declared")
    admin = parts().configuration.admin(account().name)
    changes = declared.differences(admin, wanted, prune)
    is_dry = given.get("dry_run") is True
    if not is_dry and changes:
        _refuse_growth(changes)
        declared.apply(admin, changes)
        noted = [f"{each.word} {each.kind} {each.name}" for each in changes[:NOTED_MAX]]
        parts().log.note(actor(), "apply", f"{len(changes)} entries", None, {"changes": noted})
    rows = [{"kind": each.kind, "name": each.name, "change": each.word, "fields": each.fields()} for each in changes]
    return {"changes": rows, "applied": not is_dry}


def _refuse_growth(changes: list[declared.DeclaredChange]) -> None:
    """Checks that need engines or Kafka are made by `penstock apply` only, not here."""
    for each in changes:
        old, new = each.old or {}, each.new or {}
        if each.kind == "topic" and not old and str(new.get("home", "engine")) != "engine":
            raise InvalidForm({each.name: "Use `penstock topic create --home`, which asks Kafka."})
        if (
            each.kind == "topic"
            and old
            and new
            and new["queues"] != old["queues"]
            and len(parts().brokers.places()) > 1
        ):
            raise InvalidForm(
                {each.name: "Use `penstock apply`, which looks at the backlog of groups with order by key."}
            )
