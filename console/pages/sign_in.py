"""Sign-in, sign-out, and one-time links that set the first password."""

import secrets

from flask import Response, g, redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import Gone

from console.database.accounts import NAME, NAME_FAULT, Account
from console.database.action_log import Actor
from console.errors import InvalidForm
from console.parts import address, form, parts, signed_in
from console.roles import Role
from console.routes import IN_STORY, action, page, with_said

WRONG = "The name or the password is wrong."
FIRST_TEAM = "platform"
BROWSER, BROWSER_S = "browser", 366 * 86_400
"""A cookie of a browser in which an account has signed in, for a year."""


@page("/sign-in", role=Role.NOBODY)
def form_page() -> ResponseReturnValue:
    """The form."""
    if signed_in() is not None:
        return redirect("/")
    has_accounts = parts().accounts.count() > 0
    found = parts().openid
    openid, out = found.host if found is not None else "", ""
    if found is not None and request.args.get("said") == "sign_in.leave":
        out = found.way_out(parts().origins.base(request.host) + "/sign-in")
    shown = {"openid": openid, "out": out, "next": next_page(), "has_accounts": has_accounts}
    return render_template("people/sign_in.html", name="", fault="", **shown)


@action("/sign-in", role=Role.NOBODY)
def enter() -> ResponseReturnValue:
    """Check name and password, and begin a session with a new token."""
    name, password = form().get("name", "").strip()[:64], form().get("password", "")
    found = parts().accounts.find(name)
    keys = _brake_keys(name, found)
    wait_s = parts().brake.wait_s(*keys)
    if wait_s > 0:
        fault = f"Too many failed attempts: try again in {int(wait_s) + 1} seconds."
        return _again(name, fault, 429, {"Retry-After": str(int(wait_s) + 1)})
    encoded = found.password if found is not None and found.is_active else None
    if not parts().passwords.is_right(encoded, password) or found is None or encoded is None:
        parts().brake.failed(*keys)
        parts().log.note_failed_sign_in(Actor(name, address()), f"account {name}")
        return _again(name, WRONG, 401)
    parts().brake.succeeded(keys[0])
    if parts().passwords.is_outdated(encoded):
        parts().accounts.replace_encoding(found.id, parts().passwords.encode(password))
    return begin_session(found, next_page())


def _brake_keys(name: str, found: Account | None) -> tuple[str, ...]:
    """Keys of the brake. A browser in which the account has signed in has its own: strangers cannot put it on the brake."""
    known = parts().signatures.checked(BROWSER, request.cookies.get(_browser_cookie(), ""))
    if known is not None and found is not None and known.partition(" ")[0] == str(found.id):
        return (f"browser {known}",)
    who = f"name {name.casefold()}"
    return f"{who} from {address()}", f"address {address()}", who


def _browser_cookie() -> str:
    return "__Host-penstock-browser" if parts().origins.is_https else "penstock-browser"


def begin_session(account: Account, target: str) -> Response:
    """End the session that the browser has, if any, and begin a new one."""
    old = signed_in()
    if old is not None:
        parts().sessions.close(old.token)
    opened = parts().sessions.open(account)
    parts().log.note(Actor(account.name, address()), "sign-in", f"account {account.name}")
    g.new_token = opened.token
    answer = redirect(target, 303)
    assert isinstance(answer, Response)
    if account.password is not None:
        known = parts().signatures.sign(BROWSER, f"{account.id} {secrets.token_hex(8)}")
        is_https = parts().origins.is_https
        answer.set_cookie(
            _browser_cookie(), known, max_age=BROWSER_S, httponly=True, samesite="Lax", path="/", secure=is_https
        )
    return answer


@action("/sign-out", role=Role.VIEWER, said="You are signed out.")
def leave() -> ResponseReturnValue:
    """End the session."""
    own = signed_in()
    if own is not None:
        parts().sessions.close(own.token)
        parts().log.note(Actor(own.account.name, address()), "sign-out", f"account {own.account.name}")
    g.new_token = ""
    return redirect(with_said("/sign-in"), 303)


@page("/link/<token>", role=Role.NOBODY, sample=IN_STORY)
def link(token: str) -> ResponseReturnValue:
    """Show the form of a one-time link, without using the link."""
    found = parts().links.look(token)
    if found is None:
        raise Gone("This link was used already, or it has expired. Ask an administrator for a new one.")
    own = parts().accounts.get(found.user_id) if found.user_id is not None else None
    name = own.name if own is not None else ""
    return render_template("people/link.html", is_first=found.user_id is None, name=name, team=FIRST_TEAM, faults={})


@action("/link/<token>", role=Role.NOBODY)
def use_link(token: str) -> ResponseReturnValue:
    """Set the password, of the first account with its name and team, and sign in."""
    found = parts().links.look(token)
    if found is None:
        raise Gone("This link was used already, or it has expired. Ask an administrator for a new one.")
    fields = {each: form().get(each, "") for each in ("name", "team", "password", "again")}
    try:
        account = (
            _first_account(token, fields) if found.user_id is None else _own_password(token, found.user_id, fields)
        )
    except InvalidForm as error:
        own = parts().accounts.get(found.user_id) if found.user_id is not None else None
        shown = {"name": own.name if own else fields["name"], "team": fields["team"] or FIRST_TEAM}
        return render_template("people/link.html", is_first=own is None, faults=error.faults, **shown), 422
    return begin_session(account, "/")


def _first_account(token: str, fields: dict[str, str]) -> Account:
    """Create the first administrator and team. Raises InvalidForm."""
    encoded = _encoded(fields)
    by = Actor(fields["name"].strip() or "first", address())
    _check_names(fields)
    if parts().links.use(token) is None or parts().accounts.count() > 0:
        raise Gone("The first account exists already.")
    team_id = parts().accounts.add_team(by, fields["team"].strip())
    user_id = parts().accounts.add(by, fields["name"].strip(), "admin", [team_id], encoded)
    made = parts().accounts.get(user_id)
    assert made is not None
    return made


def _own_password(token: str, user_id: int, fields: dict[str, str]) -> Account:
    encoded = _encoded(fields)
    own = parts().accounts.get(user_id)
    if own is None or not own.is_active or parts().links.use(token) is None:
        raise Gone("This link was used already, or it has expired. Ask an administrator for a new one.")
    parts().accounts.set_password(Actor(own.name, address()), user_id, encoded)
    return own


def _encoded(fields: dict[str, str]) -> str:
    if fields["password"] != fields["again"]:
        raise InvalidForm({"again": "The two passwords differ."})
    return parts().passwords.encode(fields["password"])


def _check_names(fields: dict[str, str]) -> None:
    """Check the names before the link is used. Raises InvalidForm."""
    faults = {each: NAME_FAULT for each in ("name", "team") if not NAME.fullmatch(fields[each].strip())}
    if faults:
        raise InvalidForm(faults)


def _again(name: str, fault: str, status: int, headers: dict[str, str] | None = None) -> ResponseReturnValue:
    found = parts().openid
    openid = found.host if found is not None else ""
    page = render_template(
        "people/sign_in.html", name=name, fault=fault, next=next_page(), has_accounts=True, openid=openid
    )
    return page, status, headers or {}


def next_page() -> str:
    """The page to go on with: a path of the console, never another site."""
    target = request.values.get("next", "/")
    is_path = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_path and len(target) <= 2_000 and "\\" not in target else "/"
