"""The policy for approval without a person."""

from flask import redirect, render_template
from flask.typing import ResponseReturnValue

from console.asking.approval_policy import ApprovalPolicy
from console.errors import InvalidForm
from console.parts import actor, form, parts
from console.roles import Role
from console.routes import action, page, with_said


@page("/policy", role=Role.OPERATOR, title="Policy", menu=3)
def form_page() -> ResponseReturnValue:
    """The bounds in force."""
    policy, version = parts().policy()
    return render_template("rules/policy.html", values=policy.to_value(), version=version, faults={})


@action("/policy", role=Role.OPERATOR, said="The policy is saved.")
def change() -> ResponseReturnValue:
    """Replace the bounds, unless another person was faster."""
    fields = form()
    seen = fields.get("version", "")
    try:
        policy = ApprovalPolicy.from_form(fields)
    except InvalidForm as error:
        values = {**fields, "is_on": fields.get("is_on") == "on"}
        return render_template("rules/policy.html", values=values, version=seen, faults=error.faults), 422
    parts().policies.replace(actor(), policy.to_value(), int(seen) if seen.isascii() and seen.isdigit() else -1)
    return redirect(with_said("/policy"), 303)
