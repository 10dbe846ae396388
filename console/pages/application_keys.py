"""Applications made, their keys and grants, by the functions behind `penstock app`. A secret is in one answer, once."""

from collections.abc import Mapping

from flask import redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.admin import applications
from common.admin.administrator import Administrator
from common.admin.applications import Grants, NewKey
from common.config.errors import InvalidDefinition, VersionConflict
from common.names import NAME_RULE, is_name
from console.errors import InvalidForm
from console.parts import account, actor, form, parts
from console.roles import Role
from console.routes import action, page, with_said

KINDS = {
    "send": "Send to topics", "pull_topics": "Pull from topics", "pull_groups": "Pull as groups",
    "dead_letters": "Read dead letters of groups",
}  # fmt: skip
PATTERNS_MAX = 100


@page("/applications/new", role=Role.OPERATOR)
def form_page() -> ResponseReturnValue:
    """The empty form of a new application."""
    return _form_page({"name": request.args.get("name", "")[:249]}, {})


def _form_page(values: Mapping[str, str], faults: Mapping[str, str], status: int = 200) -> ResponseReturnValue:
    return render_template("applications/application_form.html", values=values, faults=faults, kinds=KINDS), status


@action("/applications", role=Role.OPERATOR)
def make() -> ResponseReturnValue:
    """Create an application, and show its secret, this once."""
    try:
        return _shown_once(make_application(form().get("name", "").strip(), form()))
    except InvalidForm as error:
        return _form_page(form(), error.faults, 422)


def make_application(name: str, patterns: Mapping[str, str]) -> NewKey:
    """An application with its first key and these grants, patterns by KINDS. Raises InvalidForm, ConfigError."""
    if not is_name(name):
        raise InvalidForm({"name": f"Use {NAME_RULE}."})
    granted = _patterns(patterns)
    try:
        made = applications.create(_admin(), name, Grants(**granted))
    except VersionConflict as error:
        raise InvalidForm({"name": f"Application {name} exists already."}) from error
    except InvalidDefinition as error:
        raise InvalidForm({"": "; ".join(error.faults)}) from error
    given = {kind: list(each) for kind, each in granted.items() if each}
    parts().log.note(actor(), "create application", f"application {name}", None, {"key_id": made.key_id, **given})
    return made


@action("/applications/<name>/keys", role=Role.OPERATOR)
def rotate(name: str) -> ResponseReturnValue:
    """Add a second key, and show its secret, this once."""
    return _shown_once(add_key(name))


def add_key(name: str) -> NewKey:
    """A second key. Raises StateConflict when there are two; EntryNotFound."""
    made = applications.rotate(_admin(), name)
    parts().log.note(actor(), "make key", f"application {name}", None, {"key_id": made.key_id})
    return made


@action(
    "/applications/<name>/keys/<key_id>/revoke",
    role=Role.OPERATOR,
    said="The key is revoked. Every proxy refuses it within a second.",
)
def revoke(name: str, key_id: str) -> ResponseReturnValue:
    """Reject a key from now on."""
    revoke_key(name, key_id)
    return redirect(with_said(f"/applications/{name}"), 303)


def revoke_key(name: str, key_id: str) -> None:
    """Raises EntryNotFound."""
    applications.revoke(_admin(), name, key_id)
    parts().log.note(actor(), "revoke key", f"application {name}", {"key_id": key_id}, None)


@action(
    "/applications/<name>/grants",
    role=Role.OPERATOR,
    said="The grants are changed. Every proxy follows within a second.",
)
def grant(name: str) -> ResponseReturnValue:
    """Add a grant, or remove one."""
    change_grants(name, {form().get("kind", ""): form().get("pattern", "")}, form().get("action") == "remove")
    return redirect(with_said(f"/applications/{name}"), 303)


def change_grants(name: str, patterns: Mapping[str, str], is_removed: bool) -> None:
    """Add or remove grants, patterns by KINDS. Raises InvalidForm, EntryNotFound."""
    if not set(patterns) <= set(KINDS):
        raise InvalidForm({"kind": f"Choose one of {', '.join(KINDS)}."})
    granted = _patterns(patterns)
    if not any(granted.values()):
        raise InvalidForm({"pattern": "Give a name, or the beginning of names followed by *."})
    shown = {kind: list(each) for kind, each in granted.items() if each}
    if is_removed:
        applications.ungrant(_admin(), name, Grants(**granted))
        parts().log.note(actor(), "remove grant", f"application {name}", shown, None)
    else:
        applications.grant(_admin(), name, Grants(**granted))
        parts().log.note(actor(), "grant", f"application {name}", None, shown)


def _patterns(given: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The patterns of each kind, which stand apart by blanks, lines or commas. Raises InvalidForm."""
    found = {kind: tuple(dict.fromkeys(given.get(kind, "").replace(",", " ").split())) for kind in KINDS}
    if faults := {kind: f"Use at most {PATTERNS_MAX}." for kind, each in found.items() if len(each) > PATTERNS_MAX}:
        raise InvalidForm(faults)
    return found


def _shown_once(made: NewKey) -> ResponseReturnValue:
    if parts().configuration.store.get("application", made.app) is None:
        raise NotFound(f"Application {made.app} was deleted meanwhile.")
    return render_template("applications/application_secret.html", made=made)


def _admin() -> Administrator:
    return parts().configuration.admin(account().name)
