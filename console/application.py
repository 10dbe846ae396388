"""The WSGI application: pages behind the checks of host, origin, session, role and token; errors as pages."""

import logging
import secrets
from typing import Any

from flask import Flask, Response, g, jsonify, redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import BadRequest, Forbidden, HTTPException, NotFound, TooManyRequests, Unauthorized
from werkzeug.routing import IntegerConverter, Map

from common.admin.errors import StateConflict
from common.config.errors import ConfigError, EntryNotFound, InvalidEntry, VersionConflict
from console import shown
from console.asking.topic_wish import ORDER_WORDS
from console.database.sessions import SignedIn
from console.entries import OFFSET_MAX
from console.errors import ConsoleError, DatabaseUnavailable, InvalidForm, RequestConflict
from console.parts import KEY, ConsoleParts, address, parts, signed_in
from console.roles import Role
from console.routes import menu, routes, sentence
from console.security.headers import add_headers
from engine.client.admin import AdminError
from engine.link.errors import LinkError

log = logging.getLogger("penstock.console")
FORM_BYTES_MAX, FORM_PARTS_MAX = 2 << 20, 200
SESSION_S = 12 * 3_600
STATIC = "static"
"""Flask's own endpoint, the only one that `routes()` does not have: files for everybody."""
STATUS: dict[type[Exception], tuple[int, str]] = {
    InvalidForm: (422, "The form has a fault"),
    RequestConflict: (409, "Someone was faster"),
    DatabaseUnavailable: (503, "The console's database does not answer"),
    InvalidEntry: (422, "The configuration does not accept this"),
    VersionConflict: (409, "Someone was faster"),
    StateConflict: (409, "This does not fit the present state"),
    EntryNotFound: (404, "Not found"),
    ConfigError: (503, "The configuration store did not accept this"),
    LinkError: (503, "An engine does not answer"),
    AdminError: (409, "The engine did not accept this"),
    ConnectionError: (503, "An engine does not answer"),
    TimeoutError: (503, "An engine does not answer"),
}


class StoredNumber(IntegerConverter):
    """A whole number of a path. One that no database and no queue can hold names nothing that there is."""

    def __init__(self, map: Map) -> None:
        super().__init__(map, max=OFFSET_MAX)


def make_application(composed: ConsoleParts) -> Flask:
    """The application over its parts."""
    app = Flask("console", static_folder="static", template_folder="templates", root_path=_root())
    app.extensions[KEY] = composed
    app.config.update(
        MAX_CONTENT_LENGTH=FORM_BYTES_MAX, MAX_FORM_MEMORY_SIZE=FORM_BYTES_MAX, MAX_FORM_PARTS=FORM_PARTS_MAX,
        SEND_FILE_MAX_AGE_DEFAULT=3_600,
    )  # fmt: skip
    app.jinja_env.filters.update(
        visible=shown.visible,
        size=shown.size,
        number=shown.number,
        when=shown.when,
        duration=shown.duration,
        amount=shown.amount,
    )
    app.jinja_env.globals.update(ORDER_WORDS=ORDER_WORDS)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.url_map.converters["int"] = StoredNumber
    for each in routes().values():
        app.add_url_rule(each.path, each.endpoint, each.answer, methods=[each.method])
    app.before_request(check_request)
    app.after_request(finish_response)
    app.context_processor(page_context)
    app.register_error_handler(HTTPException, show_http_error)
    for kind in STATUS:
        app.register_error_handler(kind, show_known_error)
    app.register_error_handler(Exception, show_unknown_error)
    return app


def _root() -> str:
    return __file__.rpartition("/")[0]


def check_request() -> ResponseReturnValue | None:
    """Let a request pass to its page, or answer it here."""
    try:
        request.query_string.decode()
    except UnicodeDecodeError as error:
        request.query_string = b""  # the page of the error would read it, too
        raise BadRequest("The query of this address is not UTF-8.") from error
    route = routes().get(request.endpoint or "")
    if route is not None and route.is_for_probes:
        return None
    if not parts().origins.knows_host(request.host):
        raise BadRequest("The console is not known by this host name: start it with --public-url.")
    if request.endpoint is None:
        raise NotFound()
    if route is None and request.endpoint != STATIC:
        log.error("endpoint=%s: it has no role in routes(): refused", request.endpoint)
        raise NotFound()
    needed = route.role if route is not None else Role.NOBODY
    if is_api():
        check_bearer(needed)
        return None
    if request.endpoint != STATIC:
        g.session = parts().sessions.find(request.cookies.get(cookie_name(), ""))
    own = signed_in()
    if needed > Role.NOBODY and own is None:
        if request.method in ("GET", "HEAD") and request.headers.get("HX-Request") is None:
            return redirect("/sign-in" if request.path == "/" else f"/sign-in?next={request.path}")
        raise Unauthorized("Your session has ended: sign in again. Nothing was changed.")
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        _check_change(needed)
    if own is not None and own.account.role < needed:
        raise Forbidden(f"This needs the role {needed.label}; you are {own.account.role.label}.")
    return None


def is_api() -> bool:
    """Whether the request is for the API, which has tokens in place of sessions and answers with JSON."""
    return request.path.startswith("/api/v1/")


def check_bearer(needed: Role) -> None:
    """Let a request with a valid token pass. Raises Unauthorized, TooManyRequests, Forbidden.

    Cookies do not count, so no other site can make a browser send one. Only wrong tokens are delayed: others of the same
    address, which may be that of a proxy, go on. A token has 256 bits, so looking it up gives nothing to a guesser.
    """
    if needed == Role.NOBODY:
        return
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    found = parts().tokens.find(token.strip()) if kind.casefold() == "bearer" else None
    if found is None:
        key = f"token address {address()}"
        if parts().brake.wait_s(key) > 0:
            raise TooManyRequests("Too many wrong tokens: try again later.")
        if token:
            parts().brake.failed(key)
        raise Unauthorized("Send a valid token: Authorization: Bearer TOKEN.")
    g.session = SignedIn(found, "", "")
    if found.role < needed:
        raise Forbidden(f"This needs the role {needed.label}; the token has {found.role.label}.")


def _check_change(needed: Role) -> None:
    """Raise Forbidden for a change that does not come from the console's own page.

    Forms of visitors have no token; an old one may also come from a browser that has signed in since.
    """
    headers = request.headers
    if not parts().origins.is_own(request.host, headers.get("Origin"), headers.get("Sec-Fetch-Site")):
        raise Forbidden("This request does not come from the console's own pages. Nothing was changed.")
    if request.mimetype not in ("application/x-www-form-urlencoded", "multipart/form-data", ""):
        raise BadRequest("Send a form.")
    own = signed_in() if needed > Role.NOBODY else None
    if own is not None and not secrets.compare_digest(request.form.get("csrf", "").encode(), own.csrf.encode()):
        raise Forbidden("This form is of another session: load the page again. Nothing was changed.")


def cookie_name() -> str:
    """The prefix binds the cookie to this host and to TLS."""
    return "__Host-penstock" if parts().origins.is_https else "penstock"


def finish_response(response: Response) -> Response:
    """Add headers, and the cookie of a session that has begun or ended."""
    token = g.get("new_token")
    if token is not None:
        options: dict[str, Any] = {"httponly": True, "samesite": "Lax", "path": "/"}
        is_https = parts().origins.is_https
        response.set_cookie(cookie_name(), token, max_age=SESSION_S if token else 0, secure=is_https, **options)
    return add_headers(response, parts().origins.is_https, request.endpoint == STATIC)


def page_context() -> dict[str, Any]:
    """What every template may use."""
    own = signed_in()
    shown = {"Role": Role, "said": sentence(request.args.get("said", ""))}
    if own is None:
        return {**shown, "me": None, "csrf": "", "away": ""}
    away = parts().configuration.away()
    return {**shown, "me": own.account, "csrf": own.csrf, "away": away, "menu": menu(own.account.role)}


def show_http_error(error: HTTPException) -> ResponseReturnValue:
    """A page for an error that has a status."""
    if error.response is not None:
        return error.response
    return error_page(error.code or 500, error.name, error.description or "", error.get_response().headers.get("Allow"))


def show_known_error(error: Exception) -> ResponseReturnValue:
    """A page for an error of the console, the store or an engine."""
    if isinstance(error, InvalidForm) and is_api():
        return jsonify(error=str(error), status=422, faults=error.faults), 422
    status, title = next(each for kind, each in STATUS.items() if isinstance(error, kind))
    if isinstance(error, DatabaseUnavailable):
        log.error("%s", error)
        return error_page(status, title, "Try again in a moment. Operators find the reason in the console's log.")
    return error_page(status, title, str(error))


def show_unknown_error(error: Exception) -> ResponseReturnValue:
    """A page without details, and a number that the log has too."""
    number = secrets.token_hex(4)
    log.error("error=%s %s %s", number, request.method, request.path, exc_info=error)
    return error_page(500, "Internal error", f"The console could not do this. Its log has the reason under {number}.")


def error_page(status: int, title: str, text: str, allow: str | None = None) -> ResponseReturnValue:
    """One sentence and a way back. It also works while the database is away."""
    if is_api():
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        return jsonify(error=text or title, status=status), status, headers
    try:
        page = render_template("error.html", status=status, title=title, text=text)
    except ConsoleError:
        g.session = None
        page = render_template("error.html", status=status, title=title, text=text)
    return page, status, {"Allow": allow} if allow else {}
