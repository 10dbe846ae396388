"""The page of the API: its operations, and the account's tokens."""

from collections.abc import Mapping

from flask import redirect, render_template, request
from flask.typing import ResponseReturnValue

from console.api.operations import OPERATIONS
from console.errors import InvalidForm
from console.pages.own import check_password
from console.parts import account, actor, form, parts
from console.roles import ROLE_NAMES, Role
from console.routes import action, page

DAYS = (("30", "30 days"), ("90", "90 days"), ("365", "1 year"))


@page("/api", role=Role.VIEWER, title="API", menu=9)
def index() -> ResponseReturnValue:
    """The page."""
    return _page({})


def _page(faults: Mapping[str, str], status: int = 200, made: str = "") -> ResponseReturnValue:
    own = account()
    roles = [(name, name) for name in reversed(ROLE_NAMES) if Role.named(name) <= own.role]
    rows = sorted(OPERATIONS, key=lambda each: (each.path, each.method))
    page = render_template(
        "people/api.html", rows=rows, tokens=parts().tokens.of(own.id), roles=roles, days=DAYS, made=made, faults=faults,
        values=form() if faults else {"days": "90"}, url=parts().origins.base(request.host), now_ms=parts().clock.now_ms(),
    )  # fmt: skip
    return page, status


@action("/api/tokens", role=Role.VIEWER)
def make() -> ResponseReturnValue:
    """Make a token, and show it, this once. The password is asked for: a stolen session must not outlive its 12 hours."""
    own, fields = account(), form()
    text, name = fields.get("days", ""), " ".join(fields.get("name", "").split())
    days = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    try:
        if own.password is not None:
            check_password(own, fields.get("password", ""), "password")
        made = parts().tokens.make(actor(), own, name, fields.get("role", ""), days)
    except InvalidForm as error:
        return _page(error.faults, 422)
    return _page({}, made=made)


@action("/api/tokens/<int:token_id>/revoke", role=Role.VIEWER)
def revoke(token_id: int) -> ResponseReturnValue:
    """End an own token."""
    parts().tokens.revoke(actor(), account().id, token_id)
    return redirect("/api", 303)
