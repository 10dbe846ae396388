"""Requests for a change of a group's settings: the form over the present ones."""

from collections.abc import Mapping
from typing import Any

from flask import redirect, render_template
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import Forbidden, NotFound

from common.config.definitions import PULL_GROUP, ApplicationDefinition, GroupDefinition
from console.asking.consumption_wish import FIELDS
from console.asking.consumption_writing import ADDED, APPLICATION
from console.asking.group_change import fields_of_group, parse_group_change
from console.database.user_requests import CONSUMPTION
from console.errors import InvalidForm
from console.pages.changes import MOVED, team_of_change
from console.pages.consumption import application_fault, unknown_fault
from console.pages.group_actions import NOT_YOURS
from console.parts import actor, form, may_act_on_group, parts
from console.roles import Role
from console.routes import action, page


@page("/groups/<name>/change", role=Role.OWNER, sample="/groups/shipping/change")
def form_page(name: str) -> ResponseReturnValue:
    """The form with the present settings."""
    group, version = _group(name)
    return _form_page(group, version, fields_of_group(group), {})


def _form_page(
    group: GroupDefinition, version: int, values: Mapping[str, str], faults: Mapping[str, str], status: int = 200
) -> ResponseReturnValue:
    shown = {
        "values": values,
        "faults": faults,
        "version": version,
        "present": fields_of_group(group),
        "fields": FIELDS,
    }
    return render_template("groups/group_change_form.html", group=group, **shown), status


@action("/groups/<name>/change", role=Role.OWNER)
def ask(name: str) -> ResponseReturnValue:
    """Store a request for the change, unless the group has changed since the form was made."""
    group, version = _group(name)
    fields = form()
    if fields.get("version") != str(version):
        return _form_page(group, version, fields, {"": MOVED}, 409)
    try:
        wanted, reason = parse_group_change(fields, group)
        more = _grants(group, wanted, fields.get(APPLICATION, "").strip())
        team_id = team_of_change(parts().requests.owner_of_group(name))
        made = parts().requests.add_change(
            actor(), team_id, name, reason, (group.to_value(), version), wanted, CONSUMPTION, more
        )  # fmt: skip
    except InvalidForm as error:
        return _form_page(group, version, fields, error.faults, 422)
    return redirect(f"/requests/{made}", 303)


def _grants(group: GroupDefinition, wanted: Mapping[str, Any], application: str) -> dict[str, Any]:
    """The application that gets grants, and the topics that the change adds; {}: it adds none. Raises InvalidForm."""
    added = [each for each in wanted.get("topics", ()) if each not in group.topics]
    if not added:
        return {}
    faults = {"topics": unknown_fault(tuple(added)), APPLICATION: application_fault(application)}
    found = parts().configuration.application(application) if not faults[APPLICATION] else None
    definition = found.definition if found is not None else None
    if isinstance(definition, ApplicationDefinition) and not definition.allows(PULL_GROUP, group.name):
        faults[APPLICATION] = f"Application {application} may not pull as the group: name one that does."
    if wrong := {field: text for field, text in faults.items() if text}:
        raise InvalidForm(wrong)
    return {APPLICATION: application, ADDED: added}


def _group(name: str) -> tuple[GroupDefinition, int]:
    """The group's definition. Raises NotFound, Forbidden."""
    found = parts().configuration.group(name)
    if found is None or not isinstance(found.definition, GroupDefinition) or found.version is None:
        raise NotFound(f"Group {name[:249]} has no definition that can be read now.")
    if not may_act_on_group(name, list(found.definition.topics)):
        raise Forbidden(NOT_YOURS)
    return found.definition, found.version
