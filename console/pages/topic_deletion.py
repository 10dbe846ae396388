"""Deletion of a topic, by the function behind `penstock topic delete`, after a page that names what is there."""

from typing import Any

from flask import redirect, render_template
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.admin import topics
from common.config.definitions import TopicDefinition
from console.errors import InvalidForm, RequestConflict
from console.installation.queue_states import lags_of_topic, queue_states
from console.pages.topics import QUEUES_SHOWN
from console.parts import account, actor, form, parts
from console.roles import Role
from console.routes import action, page, with_said

MOVED = "The topic was changed meanwhile: look at it again, then delete it. Nothing was deleted."


@page("/topics/<name>/delete", role=Role.OPERATOR, sample="/topics/web.clicks/delete")
def form_page(name: str) -> ResponseReturnValue:
    """What is in the topic, and who reads it."""
    return _page(name, "")


def _page(name: str, fault: str, status: int = 200) -> ResponseReturnValue:
    topic, version = _found(name)
    with parts().brokers.open() as opened:
        queues, faults = queue_states(parts().brokers, opened, name, min(topic.queues, QUEUES_SHOWN))
        lags, _ = lags_of_topic(parts().brokers, opened, name)
    shown: dict[str, Any] = {"topic": topic, "version": version, "queues": queues, "lags": lags, "faults": faults}
    clients = parts().connections.told({"topic": name}, 1)
    return render_template(
        "topics/topic_delete.html", **shown, clients=clients, fault=fault, queues_shown=QUEUES_SHOWN
    ), status


@action(
    "/topics/<name>/delete", role=Role.OPERATOR, said="The topic is deleted. Every process follows within a second."
)
def delete(name: str) -> ResponseReturnValue:
    """Delete the definition, where the name was typed."""
    seen = form().get("version", "")
    try:
        delete_topic(name, form().get("typed", "").strip(), int(seen) if seen.isascii() and seen.isdigit() else -1)
    except InvalidForm as error:
        return _page(name, error.faults["typed"], 422)
    return redirect(with_said("/topics"), 303)


def delete_topic(name: str, typed: str, seen: int) -> None:
    """Delete the topic that has the version `seen`, and forget who owns it.

    Stored messages stay until retention deletes them; a topic that is created again under the name does not have them.

    Raises:
        InvalidForm: the typed name is another one. RequestConflict: it has changed. NotFound, ConfigError.
    """
    topic, version = _found(name)
    if typed != name:
        raise InvalidForm({"typed": "Type the topic's name. Nothing was deleted."})
    if version != seen:
        raise RequestConflict(MOVED)
    topics.delete(parts().configuration.admin(account().name), name)
    parts().log.note(actor(), "delete topic", f"topic {name}", topic.to_value(), None)
    parts().requests.disown(actor(), name)


def _found(name: str) -> tuple[TopicDefinition, int]:
    """The topic's own entry. Raises NotFound."""
    found = parts().configuration.topic(name)
    if found is None or not isinstance(found.definition, TopicDefinition) or found.version is None:
        raise NotFound(f"Topic {name[:249]} has no entry of its own that can be read now.")
    return found.definition, found.version
