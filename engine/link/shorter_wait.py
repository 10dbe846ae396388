"""Requests that may wait, asked again: with what is left of their time."""

import json
import struct

from engine.link.integers import U16
from engine.link.operations import PULL, READ

_WAIT = struct.Struct("<i")
_WAIT_AT = 8  # after max_messages and max_bytes


def with_shorter_wait(op: int, payload: bytes, elapsed_ms: int) -> bytes:
    """The same request, `elapsed_ms` later."""
    if op == READ:
        asked = json.loads(payload)
        return json.dumps({**asked, "wait_ms": max(0, asked.get("wait_ms", 0) - elapsed_ms)}).encode()
    if op != PULL:
        return payload
    at = U16.size + U16.unpack_from(payload)[0]
    topics = U16.unpack_from(payload, at)[0]
    at += U16.size
    for _ in range(topics):
        at += U16.size + U16.unpack_from(payload, at)[0] + 4
    at += _WAIT_AT
    (wait_ms,) = _WAIT.unpack_from(payload, at)
    return payload[:at] + _WAIT.pack(max(0, wait_ms - elapsed_ms)) + payload[at + _WAIT.size :]
