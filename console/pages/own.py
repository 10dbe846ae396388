"""The own account: role, teams, password."""

from flask import Blueprint, redirect, render_template
from flask.typing import ResponseReturnValue

from console.errors import InvalidForm
from console.pages.sign_in import begin_session
from console.parts import account, actor, address, form, parts

blueprint = Blueprint("own", __name__)


@blueprint.get("/account")
def show() -> ResponseReturnValue:
    """The account and a form for a new password."""
    return render_template("own.html", faults={})


@blueprint.post("/account/password")
def set_password() -> ResponseReturnValue:
    """Replace the password; all other sessions of the account end, and this one gets a new token."""
    own, fields = account(), form()
    keys = (f"name {own.name.casefold()}", f"address {address()}")
    try:
        if parts().brake.wait_s(*keys) > 0:
            raise InvalidForm({"old": "Too many failed attempts: try again later."})
        if not parts().passwords.is_right(own.password, fields.get("old", "")):
            parts().brake.failed(*keys)
            raise InvalidForm({"old": "This is not your present password."})
        if fields.get("password", "") != fields.get("again", ""):
            raise InvalidForm({"again": "The two passwords differ."})
        parts().accounts.set_password(actor(), own.id, parts().passwords.encode(fields.get("password", "")))
    except InvalidForm as error:
        return render_template("own.html", faults=error.faults), 422
    begin_session(own, "/account")
    return redirect("/account?said=password", 303)
