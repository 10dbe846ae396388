"""Client code for a topic, to paste: filled in with addresses, an application and its newest key, never with a secret."""

from flask import render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.config.definitions import ApplicationDefinition, TopicDefinition
from common.config.errors import StoreUnavailable
from console.client_code.examples import LANGUAGES, ClientPlace, example
from console.errors import InvalidForm
from console.installation.processes import CONSUMER_PROXY, PRODUCER_PROXY, addresses_of
from console.parts import parts
from console.roles import Role
from console.routes import page

NAME_CHARS_MAX = 249
UNKNOWN = {PRODUCER_PROXY: "proxy1:9700,proxy2:9700", CONSUMER_PROXY: "proxy1:9701,proxy2:9701"}


@page("/topics/<name>/code", role=Role.VIEWER, sample="/topics/orders.created/code?app=shop&group=billing&language=go")
def show(name: str) -> ResponseReturnValue:
    """A program of one language that sends to the topic and pulls from it."""
    found = parts().configuration.topic(name)
    if found is None or not isinstance(found.definition, TopicDefinition):
        raise NotFound(f"There is no topic {name[:NAME_CHARS_MAX]} and no family for it.")
    language = request.args.get("language", "php")
    if language not in LANGUAGES:
        raise NotFound("There is no code in this language.")
    app, group = (request.args.get(field, "").strip()[:NAME_CHARS_MAX] for field in ("app", "group"))
    key_id, is_known = _newest_key(app)
    place = ClientPlace(
        _addresses(PRODUCER_PROXY),
        _addresses(CONSUMER_PROXY),
        app or "my-application",
        key_id,
        name,
        group or "my-group",
    )
    faults, text = {}, ""
    try:
        text = example(language, place)
    except InvalidForm as error:
        faults = error.faults
    return render_template(
        "topics/code.html", name=name, languages=LANGUAGES, language=language, app=app, group=group, is_known=is_known, text=text,
        faults=faults,
    )  # fmt: skip


def _newest_key(app: str) -> tuple[str, bool]:
    """The id of the application's newest key, and whether there is such an application."""
    found = parts().configuration.view.application(app) if app else None
    if not isinstance(found, ApplicationDefinition):
        return "KEY-ID", False
    keys = sorted(found.keys, key=lambda key: key.created_at_ms)
    return (keys[-1].key_id if keys else "KEY-ID"), True


def _addresses(process: str) -> str:
    try:
        found = addresses_of(parts().configuration.store, process)
    except StoreUnavailable:
        found = []
    shown = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in sorted(found))
    return ",".join(shown) or UNKNOWN[process]
