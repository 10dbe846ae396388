"""Applications: keys without their secrets, grants and limits."""

from typing import Any

from flask import render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.config.definitions import DEAD_LETTERS, PULL_GROUP, PULL_TOPIC, SEND, ApplicationDefinition
from console.pages.application_keys import KINDS
from console.pages.connections import clients_of
from console.pages.rates import rate_fields
from console.pages.topics import settings_of
from console.parts import parts
from console.roles import Role
from console.routes import page

PAGE = 50
GRANTS = {
    "Send to topics": SEND, "Pull from topics": PULL_TOPIC, "Pull as groups": PULL_GROUP,
    "Read dead letters of groups": DEAD_LETTERS,
}  # fmt: skip


@page("/applications", role=Role.VIEWER, title="Applications", menu=4)
def index() -> ResponseReturnValue:
    """Applications by name, a page at a time."""
    text, after = request.args.get("q", "").strip()[:249], request.args.get("after", "")
    page = parts().configuration.names.page("application", text, after, PAGE)
    rows = [(name, parts().configuration.view.application(name)) for name in page.names]
    return render_template("applications/applications.html", rows=rows, page=page, text=text, after=after)


@page("/applications/<name>", role=Role.VIEWER, sample="/applications/till")
def show(name: str) -> ResponseReturnValue:
    """One application."""
    found = parts().configuration.application(name)
    if found is None or not isinstance(found.definition, ApplicationDefinition):
        raise NotFound(f"There is no application {name[:249]}.")
    app = found.definition
    grants = {words: app.patterns(action) for words, action in GRANTS.items()}
    uses = parts().sampler.pages.states.key_uses
    keys = [(key.key_id, key.created_at_ms, uses.get((name, key.key_id), 0)) for key in app.keys]  # without the secrets
    shown: dict[str, Any] = {
        "name": name,
        "version": found.version,
        "grants": grants,
        "keys": keys,
        "settings": settings_of(app),
        "kinds": KINDS,
        "rate_fields": rate_fields(ApplicationDefinition),
    }
    shown["definition"] = app
    shown["clients"] = clients_of({"application": name})
    return render_template("applications/application.html", **shown)
