"""Traffic scheduling: which broker groups carry which topics, and a group that is spared new messages."""

from typing import Any

from flask import redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.admin import administrator as verbs
from common.admin import broker_group_verbs, topics
from common.admin.topics import TopicSettings
from common.config.broker_group import WRITES, BrokerGroupDefinition
from common.config.definitions import TopicDefinition
from common.config.errors import ConfigError
from console.entries import whole
from console.errors import InvalidForm, RequestConflict
from console.installation.processes import AppliedState, applied_states
from console.installation.topic_moves import TopicMove, previewed, shares_of
from console.parts import account, actor, form, parts
from console.roles import Role
from console.routes import action, page, with_said

TOPICS_SHOWN = 500
KINDS = ("topic", "broker_group")
MOVED = "Nothing was changed: another person has changed it meanwhile. Look at it again."


@page("/traffic", role=Role.OPERATOR, title="Traffic", menu=1)
def index() -> ResponseReturnValue:
    """All broker groups, and the topics that are placed in some of them."""
    return render_template(
        "installation/traffic.html", **state_of_traffic(), applied=_applied(), topics_shown=TOPICS_SHOWN
    )


def state_of_traffic() -> dict[str, Any]:
    """The broker groups, each with the placed topics that have queues there; and the placed topics with their shares."""
    view = parts().configuration.view
    groups = {each.name: each for each in view.broker_groups()}
    placed = view.placed_topics.topics
    rows = [(each, [share for share in shares_of(list(groups), each) if share.takes or share.reads]) for each in placed]
    counts = {
        name: sum(any(share.broker_group == name and share.takes for share in shares) for _, shares in rows)
        for name in groups
    }
    return {"groups": list(groups.values()), "counts": counts, "rows": rows[:TOPICS_SHOWN], "total": len(rows)}


def _applied() -> list[AppliedState]:
    try:
        store = parts().configuration.store
        return applied_states(store, store.version(KINDS))
    except ConfigError:
        return []


@action(
    "/traffic/groups/<name>",
    role=Role.OPERATOR,
    said="The broker group's messages are steered. Every producer proxy follows within a second.",
)
def spare(name: str) -> ResponseReturnValue:
    """Change which new messages a broker group takes, unless another person was faster."""
    fields = form()
    change_writes(name, fields.get("writes", ""), fields.get("seen", ""))
    return redirect(with_said("/traffic"), 303)


def change_writes(name: str, writes: str, seen: str) -> BrokerGroupDefinition:
    """Change which new messages a group takes that took `seen`. Raises InvalidForm, RequestConflict, NotFound."""
    if writes not in WRITES:
        raise InvalidForm({"writes": f"Choose one of {', '.join(WRITES)}."})
    admin = parts().configuration.admin(account().name)
    if name not in {each.name for each in parts().configuration.view.broker_groups()}:
        raise NotFound(f"There is no broker group {name[:249]}.")
    old, version = verbs.get(admin, BrokerGroupDefinition, name)
    if old.writes != seen:
        raise RequestConflict(MOVED)
    new = broker_group_verbs.set_writes(admin, name, writes, version)
    parts().log.note(actor(), "spare broker group", f"broker group {name}", old.to_value(), new.to_value())
    return new


@page("/traffic/topics/<name>", role=Role.OPERATOR, sample="/traffic/topics/web.clicks?preview=1&to=main")
def form_page(name: str) -> ResponseReturnValue:
    """A topic's broker groups; with `to`, what a change to these would do."""
    wanted = request.args.getlist("to")
    topic, version = _topic(name)
    preview = preview_of(topic, wanted) if "preview" in request.args else None
    return _page(topic, version, wanted if preview else list(topic.broker_groups), preview, {})


def _page(
    topic: TopicDefinition, version: int, wanted: list[str], preview: TopicMove | None, faults: dict[str, str],
    status: int = 200,
) -> ResponseReturnValue:  # fmt: skip
    names = list(parts().brokers.places())
    return render_template(
        "installation/topic_traffic.html", topic=topic, version=version, wanted=wanted, preview=preview, faults=faults, names=names,
        shares=shares_of(names, topic) if names else [],
    ), status  # fmt: skip


@action(
    "/traffic/topics/<name>",
    role=Role.OPERATOR,
    said="New messages go to these broker groups. Every process follows within a second.",
)
def move(name: str) -> ResponseReturnValue:
    """Change a topic's broker groups as the preview has shown."""
    fields = form()
    seen = whole(fields.get("version", ""), 1 << 50)
    try:
        move_topic(name, request.form.getlist("to"), -1 if seen is None else seen)
    except InvalidForm as error:
        topic, version = _topic(name)
        return _page(topic, version, request.form.getlist("to"), None, error.faults, 422)
    return redirect(with_said("/traffic"), 303)


def preview_of(topic: TopicDefinition, wanted: list[str]) -> TopicMove:
    """Preview a change of the topic's broker groups. Raises InvalidForm."""
    known = parts().brokers.places()
    if unknown := [each for each in wanted if each not in known]:
        raise InvalidForm({"to": f"There is no broker group {unknown[0][:40]}."})
    groups = [] if set(wanted) == set(known) else sorted(set(wanted))
    return previewed(parts().brokers, parts().configuration.view, topic, groups)


def previewed_move(name: str, wanted: list[str], seen: int) -> TopicMove:
    """Preview a change that was decided on version `seen`. Raises InvalidForm, RequestConflict, NotFound."""
    topic, version = _topic(name)
    if version != seen:
        raise RequestConflict(MOVED)
    return preview_of(topic, wanted)


def move_topic(name: str, wanted: list[str], seen: int) -> TopicMove:
    """Change the broker groups of a topic that has the version `seen`.

    Raises:
        InvalidForm: nothing differs, or the order by key of a group would break. RequestConflict, NotFound, ConfigError.
    """
    preview = previewed_move(name, wanted, seen)
    topic = preview.old
    if not preview.added:
        raise InvalidForm({"to": "It is in these broker groups already."})
    if preview.faults:
        raise InvalidForm({"": " ".join(preview.faults)})
    for group, count in preview.backlogs:
        raise InvalidForm(
            {"": f"Group {group} has order by key and {count:,} messages to acknowledge: wait until it has none."}
        )
    settings = TopicSettings(broker_groups=list(preview.new.broker_groups))
    new = topics.set_topic(parts().configuration.admin(account().name), name, settings, seen)
    parts().log.note(actor(), "move topic", f"topic {name}", topic.to_value(), new.to_value())
    return preview


def _topic(name: str) -> tuple[TopicDefinition, int]:
    """The topic's own entry. Raises NotFound."""
    found = parts().configuration.topic(name)
    if found is None or not isinstance(found.definition, TopicDefinition) or found.version is None:
        raise NotFound(f"Topic {name[:249]} has no entry of its own that can be read now.")
    return found.definition, found.version
