"""Rules that hide fields of messages by role, for administrators."""

from collections.abc import Mapping

from flask import Blueprint, redirect, render_template
from flask.typing import ResponseReturnValue

from console.errors import InvalidForm
from console.parts import actor, form, parts
from console.roles import ROLE_NAMES
from console.security.masking import checked_rule

blueprint = Blueprint("masking", __name__)


@blueprint.get("/masking")
def index() -> ResponseReturnValue:
    """All rules, and the form to add one."""
    return _page({})


def _page(faults: Mapping[str, str], status: int = 200) -> ResponseReturnValue:
    roles = [(name, name) for name in reversed(ROLE_NAMES[1:])]
    values = form() if faults else {}
    page = render_template("masking.html", rules=parts().masking.all(), faults=faults, values=values, roles=roles)
    return page, status


@blueprint.post("/masking")
def add() -> ResponseReturnValue:
    """Add a rule."""
    fields = form()
    try:
        rule = checked_rule(fields.get("topics", "").strip(), fields.get("field", "").strip(), fields.get("role", ""))
        parts().masking.add(actor(), rule)
    except InvalidForm as error:
        return _page(error.faults, 422)
    return redirect("/masking?said=masked", 303)


@blueprint.post("/masking/<int:rule_id>/remove")
def remove(rule_id: int) -> ResponseReturnValue:
    """Remove a rule."""
    parts().masking.remove(actor(), rule_id)
    return redirect("/masking?said=unmasked", 303)
