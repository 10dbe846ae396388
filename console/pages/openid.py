"""Sign-in by OpenID Connect: the way to the provider, and its answer."""

import logging
from typing import Any

from flask import Response, redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.limited_log import LimitedLog
from console.database.action_log import Actor
from console.errors import ProviderUnavailable, SignInRefused
from console.pages.sign_in import begin_session, next_page
from console.parts import address, parts
from console.roles import Role
from console.routes import resource
from console.security.openid_attempt import LASTS_S, OpenIdAttempt
from console.security.openid_provider import OpenIdProvider
from console.security.openid_roles import role_of

limited = LimitedLog(logging.getLogger("penstock.console"))
CALLBACK = "/sign-in/openid/answer"
NOT_BEGUN = "no sign-in was begun in this browser, or it took longer than 10 minutes: begin again"
NAME, ATTEMPT = "the sign-in service", "openid"


@resource("/sign-in/openid", role=Role.NOBODY)
def begin() -> ResponseReturnValue:
    """Send the browser to the provider, with a cookie by which its answer is known."""
    provider, attempt = _provider(), OpenIdAttempt.new(next_page(), _now_s())
    try:
        if parts().accounts.count() == 0:
            raise SignInRefused("the console has no administrator yet: use the one-time link of its first start")
        answer = redirect(provider.way(attempt, _callback()), 303)
    except (ProviderUnavailable, SignInRefused) as error:
        return _refused(provider, error)
    assert isinstance(answer, Response)
    _set_cookie(answer, parts().signatures.sign(ATTEMPT, attempt.to_cookie()))
    return answer


@resource(CALLBACK, role=Role.NOBODY)
def answer() -> ResponseReturnValue:
    """Check the provider's answer, and begin a session."""
    provider = _provider()
    attempt = OpenIdAttempt.from_cookie(parts().signatures.checked(ATTEMPT, request.cookies.get(_cookie(), "")) or "")
    state, code = request.args.get("state", ""), request.args.get("code", "")
    is_told = False  # whether the provider has said anything about a person
    try:
        if attempt is None or state != attempt.state or attempt.ends_s <= _now_s():
            raise SignInRefused(NOT_BEGUN)
        if error := request.args.get("error", ""):
            raise SignInRefused(f"it says {error[:60]}")
        if parts().brake.wait_s(_brake_key()) > 0:
            raise SignInRefused("too many attempts have failed: try again later")
        is_told = True
        claims = _claims(provider, attempt, code)
        settings = provider.settings
        role = role_of(claims, settings.role_claim, settings.roles) if settings.role_claim else None
        account = parts().identities.sign_in(address(), settings.issuer, claims, role)
    except (ProviderUnavailable, SignInRefused) as error:
        return _refused(provider, error, is_told)
    done = begin_session(account, attempt.target)
    _set_cookie(done, "")
    return done


def _claims(provider: OpenIdProvider, attempt: OpenIdAttempt, code: str) -> dict[str, Any]:
    """What the provider says for the code; an address whose codes are wrong is put on the brake of sign-ins."""
    try:
        return provider.claims(attempt, code, _callback())
    except SignInRefused:
        parts().brake.failed(_brake_key())
        raise


def _brake_key() -> str:
    return f"openid address {address()}"


def _refused(provider: OpenIdProvider, error: Exception, is_told: bool = False) -> ResponseReturnValue:
    """The page of a refusal. Only what the provider has said is recorded: visitors can make up the rest without end."""
    is_away = isinstance(error, ProviderUnavailable)
    limited.warning("openid: %s", error)
    if is_told and not is_away:
        parts().log.note_failed_sign_in(Actor("(openid)", address()), provider.host, {"reason": str(error)[:300]})
    fault = f"Signing in by {provider.host} did not work: {error}."
    shown = {"name": "", "fault": fault, "next": "/", "has_accounts": True, "openid": provider.host}
    page = Response(render_template("people/sign_in.html", **shown), 503 if is_away else 401)
    _set_cookie(page, "")
    return page


def _provider() -> OpenIdProvider:
    found = parts().openid
    if found is None:
        raise NotFound("The console has no sign-in service: see --openid-issuer.")
    return found


def _callback() -> str:
    return parts().origins.base(request.host) + CALLBACK


def _now_s() -> int:
    return parts().clock.now_ms() // 1000


def _cookie() -> str:
    return "__Host-penstock-openid" if parts().origins.is_https else "penstock-openid"


def _set_cookie(answer: Response, value: str) -> None:
    """Lax and not Strict: the provider's answer is a link from another site."""
    is_https = parts().origins.is_https
    answer.set_cookie(
        _cookie(), value, max_age=LASTS_S if value else 0, httponly=True, samesite="Lax", path="/", secure=is_https
    )
