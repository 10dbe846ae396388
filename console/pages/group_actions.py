"""Actions on one group: reset with a preview, pause, resume."""

from typing import Any

from flask import redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import Forbidden, NotFound

from common.admin import audit, groups
from common.admin.groups import GroupSettings
from common.config.definitions import GroupDefinition
from common.config.errors import ConfigError, VersionConflict
from common.dead_letters import is_dead_letter_topic
from common.names import is_name
from console.entries import OFFSET_MAX, QUEUE_MAX, TIME_RULE, time_ms, whole
from console.errors import InvalidForm
from console.installation.group_resets import QueueMove, Target
from console.parts import account, actor, form, may_act_on_group, parts
from console.roles import Role
from console.routes import action, page, with_said
from engine.client.admin import AdminError

PLACES = ("earliest", "latest", "time", "offset", "shift")
MOVES_CHARS_MAX = 400_000
NOT_YOURS = "Only operators, owners whose team asked for the group, and those whose teams own every topic that it reads, can do this."


def topics_of(name: str) -> list[str]:
    """The topics that a group reads or has read, without dead letters. Raises NotFound."""
    found = parts().configuration.group(name) if is_name(name) else None
    topics: set[str] = set()
    if found is not None and isinstance(found.definition, GroupDefinition):
        topics.update(found.definition.topics)
    if is_name(name):
        with parts().brokers.open() as opened:
            answer = parts().brokers.ask(opened, "lag", "queues", group=name)
        topics.update(row["topic"] for row in answer.rows)
        if found is None and not answer.rows:
            told = f" as far as is known: {' '.join(answer.faults)}" if answer.faults else "."
            raise NotFound(f"Group {name[:249]} is not defined and has never pulled{told}")
    else:
        raise NotFound(f"There is no group {name[:249]}.")
    return sorted(topic for topic in topics if not is_dead_letter_topic(topic))


def checked_topics(name: str) -> list[str]:
    """The group's topics, for an account that may act on it. Raises Forbidden, NotFound."""
    topics = topics_of(name)
    if not may_act_on_group(name, topics):
        raise Forbidden(NOT_YOURS)
    return topics


def record(action: str, kind: str, name: str, old: dict[str, Any] | None, new: dict[str, Any]) -> None:
    """Record an action at an engine in the console's log, and in the store's journal as the commands do."""
    parts().log.note(actor(), f"{action} {kind.replace('_', ' ')}", f"group {name}", old, new)
    admin = parts().configuration.admin(account().name)
    try:
        audit.record(admin.store, admin.clock, admin.who, action, kind, [name], old, new)
    except ConfigError:
        pass  # the console's own log has it


@page("/groups/<name>/reset", role=Role.OWNER, sample="/groups/billing/reset?topic=orders.created&to=shift&value=-10")
def reset_form(name: str) -> ResponseReturnValue:
    """The form, and the preview of what it asks for. Nothing is moved."""
    topics = checked_topics(name)
    asked = {field: request.args.get(field, "").strip() for field in ("topic", "to", "value", "queue")}
    moves: list[QueueMove] | None = None
    fault = ""
    if asked["to"]:
        try:
            target, queue = _target(asked, topics), _queue(asked["queue"])
            moves = parts().positions.preview(name, asked["topic"], target, queue)
        except InvalidForm as error:
            fault = " ".join(error.faults.values())
        except AdminError as error:
            fault = str(error)
    return render_template(
        "groups/group_reset.html", name=name, topics=topics, asked=asked, moves=moves, fault=fault, places=PLACES,
        stated=",".join(f"{each.queue}:{each.new}" for each in moves or [] if each.new != each.old),
    )  # fmt: skip


@action(
    "/groups/<name>/reset",
    role=Role.OWNER,
    said="The position was moved as the preview has shown. Messages in flight are delivered again.",
)
def reset(name: str) -> ResponseReturnValue:
    """Make the moves that were previewed: each queue goes to the offset that the preview has shown."""
    topics = checked_topics(name)
    topic, offsets = form().get("topic", ""), _stated(form().get("moves", ""))
    if topic not in topics or not offsets:
        raise InvalidForm({"": "Preview the reset first. Nothing was moved."})
    moved = parts().positions.move(name, topic, offsets)
    old, new = {str(each.queue): each.old for each in moved}, {str(each.queue): each.new for each in moved}
    record("reset", "progress", f"{name}/{topic}", old, new)
    return redirect(with_said(f"/groups/{name}"), 303)


def _target(asked: dict[str, str], topics: list[str]) -> Target:
    if asked["topic"] not in topics:
        raise InvalidForm({"topic": "Choose one of the group's topics."})
    value = asked["value"]
    if asked["to"] in ("earliest", "latest"):
        return asked["to"]
    if asked["to"] == "time":
        at = time_ms(value)
        if at is None:
            raise InvalidForm({"value": TIME_RULE})
        return {"time_ms": at}
    if asked["to"] == "offset":
        offset = whole(value, OFFSET_MAX)
        if offset is None:
            raise InvalidForm({"value": "Give an offset as a whole number from 0 on."})
        return offset
    distance = whole(value.lstrip("+-"), OFFSET_MAX)
    if asked["to"] != "shift" or distance is None:
        raise InvalidForm({"value": "Give a shift as +100 or -100 messages."})
    return {"shift": -distance if value.startswith("-") else distance}


def _queue(text: str) -> int | None:
    if not text:
        return None
    queue = whole(text, QUEUE_MAX)
    if queue is None:
        raise InvalidForm({"queue": "Give a queue as a whole number from 0 on, or leave it empty for all."})
    return queue


def _stated(text: str) -> dict[int, int]:
    """The moves of a preview, as queue:offset,queue:offset. Raises InvalidForm."""
    found: dict[int, int] = {}
    if len(text) > MOVES_CHARS_MAX:
        raise InvalidForm(
            {"": "This preview has too many queues for a form: reset one queue, or use the command line."}
        )
    for part in text.split(",") if text else ():
        queue, offset = (whole(each, OFFSET_MAX) for each in (part.partition(":")[0], part.partition(":")[2]))
        if queue is None or offset is None or queue > QUEUE_MAX:
            raise InvalidForm({"": "This preview is damaged: make it again. Nothing was moved."})
        found[queue] = offset
    return found


@action(
    "/groups/<name>/pause",
    role=Role.OWNER,
    said="Deliveries to the group stop within a second. Acknowledgements still count.",
)
def pause(name: str) -> ResponseReturnValue:
    """Stop deliveries. A group without a definition gets one with the defaults."""
    checked_topics(name)
    admin = parts().configuration.admin(account().name)
    if not groups.is_defined(admin, name):
        try:
            groups.create(admin, name, GroupSettings())
        except VersionConflict:
            pass  # another person was faster
    groups.set_paused(admin, name, True)
    parts().log.note(actor(), "pause", f"group {name}", {"paused": False}, {"paused": True})
    return redirect(with_said(f"/groups/{name}"), 303)


@action("/groups/<name>/resume", role=Role.OWNER, said="Deliveries to the group go on.")
def resume(name: str) -> ResponseReturnValue:
    """Resume deliveries."""
    checked_topics(name)
    groups.set_paused(parts().configuration.admin(account().name), name, False)
    parts().log.note(actor(), "resume", f"group {name}", {"paused": True}, {"paused": False})
    return redirect(with_said(f"/groups/{name}"), 303)
