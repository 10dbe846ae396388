"""Delayed messages on the link: the client's half of TIMER_ADD, TIMER_CANCEL and TIMER_LIST."""

import json
from typing import Any

from engine.client.admin import AdminClient, AdminError
from engine.link import layout
from engine.link.timer import ANY_QUEUE, Timer

__all__ = ["ANY_QUEUE", "Timer", "cancel", "decode_added", "encode_add", "encode_cancel", "listed"]


def encode_add(durability: int, timers: list[Timer]) -> bytes:
    """A TIMER_ADD request."""
    return layout.APPEND_HEAD.pack(durability, len(timers)) + b"".join(timer.pack() for timer in timers)


def decode_added(payload: bytes) -> list[tuple[int, int | None, int | None]]:
    """Its answer: (code, queue, offset) for each; the last two of a DUPLICATE whose first copy is in its queue."""
    return [
        (code, None, None) if code != layout.DUPLICATE or queue == ANY_QUEUE else (code, queue, offset)
        for code, queue, offset in layout.APPEND_RESULT.iter_unpack(payload)
    ]


def encode_cancel(durability: int, topic: str, shown_id: str) -> bytes:
    """A TIMER_CANCEL request."""
    return json.dumps({"durability": durability, "topic": topic, "id": shown_id}).encode()


def cancel(admin: AdminClient, topic: str, shown_id: str) -> None:
    """Withdraw a pending message; durable on return. Raises AdminError, OSError."""
    _checked(*admin.call(layout.TIMER_CANCEL, encode_cancel(layout.FSYNC, topic, shown_id)))


def listed(admin: AdminClient, topic: str | None, start: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    """(up to `limit` pending messages in no order, where to go on or -1 at the end). Raises AdminError, OSError."""
    request = {"topic": topic, "start": start, "limit": limit}
    answer = json.loads(_checked(*admin.call(layout.TIMER_LIST, json.dumps(request).encode())))
    return answer["timers"], answer["next"]


def _checked(code: int, payload: bytes) -> bytes:
    if code != layout.OK:
        raise AdminError(code, payload.decode("utf-8", "replace"))
    return payload
