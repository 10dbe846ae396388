"""Notes on a topic beside the configuration: what its messages look like, and what its users need.

No process checks or follows it, so it is not in the configuration, which each of them keeps in memory.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from console.database.console_database import ConsoleDatabase
from console.database.schema import requests, topic_notes
from console.errors import RequestConflict

SCHEMA, SCHEMA_BASE = "body_schema", "body_schema_base"
"""Of what a request asks for: the new text; and in one for a change, the text that the asker saw."""


@dataclass(frozen=True)
class TopicNotes:
    """Attributes: body_schema: "": there is none. order: "none", "key" or "all". replies: whether requests with a reply are sent."""

    body_schema: str = ""
    order: str = "none"
    replies: bool = False


def notes_of(database: ConsoleDatabase, topic: str) -> TopicNotes:
    with database.read() as connection:
        return _found(connection, topic)


def _found(connection: Connection, topic: str) -> TopicNotes:
    wanted = select(topic_notes.c.body_schema, topic_notes.c.order_need, topic_notes.c.replies)
    row = connection.execute(wanted.where(topic_notes.c.topic == topic)).one_or_none()
    return TopicNotes() if row is None else TopicNotes(*row)


def check_base(connection: Connection, request_id: int, topic: str, asked: dict[str, Any]) -> None:
    """Raise RequestConflict for a change of a schema that is another one by now, or that a decided request changes."""
    if SCHEMA_BASE not in asked:
        return
    same = (requests.c.name == topic, requests.c.kind == "topic", requests.c.state == "approved")
    others = connection.execute(select(requests.c.asked).where(*same, requests.c.id != request_id)).scalars()
    if _found(connection, topic).body_schema != asked[SCHEMA_BASE] or any(SCHEMA_BASE in each for each in others):
        raise RequestConflict(
            f"The JSON schema of topic {topic} was changed since this was asked for: look at the request again."
        )


def note_applied(connection: Connection, topic: str, asked: dict[str, Any], is_new: bool) -> None:
    """Keep what an applied request says of its topic."""
    if is_new:
        now = {
            "body_schema": asked.get(SCHEMA, ""),
            "order_need": asked.get("order", "none"),
            "replies": asked.get("replies") == "yes",
        }
    elif SCHEMA in asked:
        now = {"body_schema": asked[SCHEMA]}
    else:
        return
    same = topic_notes.c.topic == topic
    if connection.execute(update(topic_notes).where(same).values(**now)).rowcount == 0:
        connection.execute(insert(topic_notes).values(topic=topic, **now))


def forget(connection: Connection, topic: str) -> None:
    """Of a topic that was deleted."""
    connection.execute(delete(topic_notes).where(topic_notes.c.topic == topic))
