"""Rules that hide fields of messages by role, for administrators."""

from collections.abc import Mapping

from flask import redirect, render_template
from flask.typing import ResponseReturnValue

from console.errors import InvalidForm
from console.parts import actor, form, parts
from console.roles import ROLE_NAMES, Role
from console.routes import action, page, with_said
from console.security.masking import checked_rule


@page("/masking", role=Role.ADMIN, title="Masking", menu=3)
def index() -> ResponseReturnValue:
    """All rules, and the form to add one."""
    return _page({})


def _page(faults: Mapping[str, str], status: int = 200) -> ResponseReturnValue:
    roles = [(name, name) for name in reversed(ROLE_NAMES[1:])]
    values = form() if faults else {}
    page = render_template("rules/masking.html", rules=parts().masking.all(), faults=faults, values=values, roles=roles)
    return page, status


@action("/masking", role=Role.ADMIN, said="The rule counts from now on.")
def add() -> ResponseReturnValue:
    """Add a rule."""
    fields = form()
    try:
        rule = checked_rule(fields.get("topics", "").strip(), fields.get("field", "").strip(), fields.get("role", ""))
        parts().masking.add(actor(), rule)
    except InvalidForm as error:
        return _page(error.faults, 422)
    return redirect(with_said("/masking"), 303)


@action("/masking/<int:rule_id>/remove", role=Role.ADMIN, said="The rule is removed.")
def remove(rule_id: int) -> ResponseReturnValue:
    """Remove a rule."""
    parts().masking.remove(actor(), rule_id)
    return redirect(with_said("/masking"), 303)
