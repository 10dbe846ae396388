"""Delayed messages for tools: withdraw one, list pending ones. The payloads are in engine.link.timer."""

from typing import Any

from engine.client.admin import AdminClient, AdminError
from engine.link.append import FSYNC
from engine.link.codes import OK
from engine.link.operations import TIMER_CANCEL, TIMER_LIST
from engine.link.timer import ANY_QUEUE, Timer, decode_added, decode_listed, encode_add, encode_cancel, encode_list

__all__ = ["ANY_QUEUE", "Timer", "cancel", "decode_added", "encode_add", "encode_cancel", "listed"]


def cancel(admin: AdminClient, topic: str, shown_id: str) -> None:
    """Withdraw a pending message; durable on return. Raises AdminError, OSError."""
    _checked(*admin.call(TIMER_CANCEL, encode_cancel(FSYNC, topic, shown_id)))


def listed(admin: AdminClient, topic: str | None, start: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    """(up to `limit` pending messages, unordered; `start` of the next page or -1). Raises AdminError, OSError."""
    return decode_listed(_checked(*admin.call(TIMER_LIST, encode_list(topic, start, limit))))


def _checked(code: int, payload: bytes) -> bytes:
    if code != OK:
        raise AdminError(code, payload.decode("utf-8", "replace"))
    return payload
