"""Accounts and teams, for administrators."""

from collections.abc import Mapping

from flask import render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from console.errors import InvalidForm
from console.parts import actor, form, parts
from console.roles import ROLE_NAMES, Role
from console.routes import action, page

LINK_DAYS = 7


@page("/people", role=Role.ADMIN, title="People", menu=1)
def index() -> ResponseReturnValue:
    """All accounts and teams, with the forms to add one."""
    return _page()


def _page(faults: Mapping[str, str] | None = None, status: int = 200, **shown: str) -> ResponseReturnValue:
    page = render_template(
        "people/people.html", accounts=parts().accounts.all(), teams=parts().accounts.teams(), roles=ROLE_NAMES,
        faults=faults or {}, values=form(), days=LINK_DAYS, **shown,
    )  # fmt: skip
    return page, status


@action("/people", role=Role.ADMIN)
def add() -> ResponseReturnValue:
    """Create an account and show its one-time link, this once."""
    name = form().get("name", "").strip()
    try:
        user_id = parts().accounts.add(actor(), name, form().get("role", ""), _teams())
    except InvalidForm as error:
        return _page(error.faults, 422)
    return _page(link=_link(user_id), link_name=name)


@action("/people/<int:user_id>", role=Role.ADMIN)
def change(user_id: int) -> ResponseReturnValue:
    """Change role, teams and state of an account; its sessions end."""
    try:
        parts().accounts.change(actor(), user_id, form().get("role", ""), form().get("is_active") == "on", _teams())
    except InvalidForm as error:
        return _page({"": error.faults.get("") or " ".join(error.faults.values())}, 422)
    return _page(said_text="The account is changed. It has to sign in again.")


@action("/people/<int:user_id>/link", role=Role.ADMIN)
def make_link(user_id: int) -> ResponseReturnValue:
    """A one-time link by which an account sets a new password."""
    found = parts().accounts.get(user_id)
    if found is None:
        raise NotFound("There is no such account.")
    parts().log.note(actor(), "make sign-in link", f"account {found.name}")
    return _page(link=_link(user_id), link_name=found.name)


@action("/people/<int:user_id>/end", role=Role.ADMIN)
def end_access(user_id: int) -> ResponseReturnValue:
    """End all sessions and API tokens of an account, as after a theft."""
    try:
        parts().accounts.end_access(actor(), user_id)
    except InvalidForm as error:
        return _page(error.faults, 422)
    return _page(said_text="All sessions and API tokens of the account have ended.")


@action("/people/teams", role=Role.ADMIN)
def add_team() -> ResponseReturnValue:
    """Create a team."""
    try:
        parts().accounts.add_team(actor(), form().get("team", "").strip(), form().get("prefix", "").strip())
    except InvalidForm as error:
        return _page(error.faults, 422)
    return _page(said_text="The team is created.")


def _link(user_id: int) -> str:
    return f"{parts().origins.base(request.host)}/link/{parts().links.make(user_id, LINK_DAYS)}"


def _teams() -> list[int]:
    return [int(each) for each in request.form.getlist("teams") if each.isascii() and each.isdigit() and len(each) < 10]
