"""Notices about requests: asked, commented, decided, applied."""

from sqlalchemy import Connection

from console.database.action_log import Actor
from console.database.notice_queue import NoticeQueue
from console.database.user_requests import (
    APPLIED,
    APPROVED,
    COMMENT,
    REJECTED,
    REQUESTED,
    WITHDRAWN,
    UserRequest,
)

WORDS = {
    REQUESTED: "asks for", COMMENT: "commented on the request for", APPROVED: "approved the request for",
    REJECTED: "rejected the request for", WITHDRAWN: "withdrew the request for", APPLIED: "created",
}  # fmt: skip
"""Events that are told; a draft is its author's own."""


def tell_of_request(
    queue: NoticeQueue, connection: Connection, found: UserRequest, actor: Actor, kind: str, text: str
) -> None:
    """Queue the notice of an event of a request."""
    if kind not in WORDS:
        return
    what = f"a change of {found.subject}" if found.base_version is not None else found.subject
    title = f"{actor.name} {WORDS[kind]} {what}"
    body = {
        "request": found.id, "kind": found.kind, "name": found.name, "team": found.team, "asker": found.asker, "by": actor.name,
        "state": found.state, "text": text, "path": f"/requests/{found.id}",
    }  # fmt: skip
    queue.put(connection, f"request.{kind}", title, body)
