"""The own account: role, teams, password."""

from flask import render_template
from flask.typing import ResponseReturnValue

from console.database.accounts import Account
from console.errors import InvalidForm
from console.pages.sign_in import begin_session
from console.parts import account, actor, form, parts
from console.roles import Role
from console.routes import action, page, with_said


@page("/account", role=Role.VIEWER, title="Your account")
def show() -> ResponseReturnValue:
    """The account and a form for a new password."""
    return render_template("people/own.html", faults={})


@action(
    "/account/password",
    role=Role.VIEWER,
    said="Your password is changed. Your other sessions and all your API tokens have ended.",
)
def set_password() -> ResponseReturnValue:
    """Replace the password; all other sessions and the API tokens end, and this session gets a new cookie."""
    own, fields = account(), form()
    try:
        check_password(own, fields.get("old", ""), "old")
        if fields.get("password", "") != fields.get("again", ""):
            raise InvalidForm({"again": "The two passwords differ."})
        parts().accounts.set_password(actor(), own.id, parts().passwords.encode(fields.get("password", "")))
    except InvalidForm as error:
        return render_template("people/own.html", faults=error.faults), 422
    return begin_session(own, with_said("/account"))


def check_password(own: Account, password: str, field: str) -> None:
    """Ask a signed-in person for the password again. Raises InvalidForm.

    Whoever has only the session may not guess it, so failures of the account are counted apart from sign-ins.
    """
    key = f"own password {own.id}"
    if parts().brake.wait_s(key) > 0:
        raise InvalidForm({field: "Too many failed attempts: try again later."})
    if not parts().passwords.is_right(own.password, password):
        parts().brake.failed(key)
        raise InvalidForm({field: "This is not your present password."})
    parts().brake.succeeded(key)
