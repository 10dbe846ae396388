"""Walker in pure Python. The reference of `_walk.pyx` and `_native.pyx`.

If a field id occurs twice, each occurrence is checked against the rules and the last value counts, as in Thrift.
"""

from collections.abc import Callable

from common.wire import calls
from common.wire.cursor import STRUCT, Cursor, valid_name, valid_utf8
from common.wire.faults import WireFault
from common.wire.kafka_hash import murmur2
from common.wire.pull import pull_request
from common.wire.send import send_request

__all__ = ["murmur2", "valid_name", "walk_header", "walk_pull", "walk_send"]

_ARGUMENTS, _IN_ARGUMENTS = 0x100, 1
_CALL = 1
_METHOD_BYTES_MAX = 64
_FRAME_BYTES_MAX = 0x7FFFFFFF


def _header(c: Cursor) -> tuple[int, int, int]:
    """Return (start of the name, its size, kind); puts the sequence id into the cursor."""
    if c.end > _FRAME_BYTES_MAX:
        c.fail(WireFault.FRAME_TOO_LARGE, 0)
    c.need(4)
    if c.data[:3] != b"\x80\x01\x00":
        c.fail(WireFault.VERSION, 0)
    kind = c.data[3]
    c.at = 4
    start, size = c.string()
    if not 0 < size <= _METHOD_BYTES_MAX or not valid_utf8(c.slice(start, size)):
        c.fail(WireFault.NAME, 4)
    c.seqid = c.i32()
    if not 1 <= kind <= 4:
        c.fail(WireFault.KIND, 3)
    return start, size, kind


def _call(c: Cursor, method: bytes) -> None:
    start, size, kind = _header(c)
    if kind != _CALL:
        c.fail(WireFault.KIND, 3)
    if c.slice(start, size) != method:
        c.fail(WireFault.METHOD, start)


def _arguments(
    c: Cursor, walk_request: Callable[..., None], call: calls.SendCall | calls.PullCall, *limits: int
) -> None:
    """Walk the argument struct with its one field; no byte may follow it."""
    seen = set()
    for field_id in c.fields((0, STRUCT), _ARGUMENTS, _IN_ARGUMENTS):
        seen.add(field_id)
        walk_request(c, call, *limits)
    c.all_seen(seen, (1,), _ARGUMENTS)
    if c.at != c.end:
        c.fail(WireFault.TRAILING, c.at)


def _cursor(frame: bytes) -> Cursor:
    if type(frame) is not bytes:
        raise TypeError(f"frame of type {type(frame).__name__}: must be bytes")
    return Cursor(frame)


def walk_header(frame: bytes) -> tuple[str, int, int]:
    """Return (method, seqid, kind: 1 CALL, 2 REPLY, 3 EXCEPTION, 4 ONEWAY). Raises WireError."""
    c = _cursor(frame)
    start, size, kind = _header(c)
    return c.slice(start, size).decode(), c.seqid, kind


def walk_send(
    frame: bytes, *, messages_max: int = calls.MESSAGES_MAX, body_bytes_max: int = calls.BODY_BYTES_MAX
) -> calls.SendCall:
    """Return the content of a call of `send`. Raises WireError."""
    c = _cursor(frame)
    _call(c, b"send")
    call = calls.SendCall(frame, c.seqid)
    _arguments(c, send_request, call, messages_max, body_bytes_max)
    return call


def walk_pull(frame: bytes, *, acks_max: int = calls.ACKS_MAX) -> calls.PullCall:
    """Return the content of a call of `pull`. Raises WireError."""
    c = _cursor(frame)
    _call(c, b"pull")
    call = calls.PullCall(frame, c.seqid)
    _arguments(c, pull_request, call, acks_max)
    return call
