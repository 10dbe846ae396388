"""What must hold for any bytes at all: the twins agree, and what walks decodes to the same values."""

from common import contract
from common.wire import WireError, calls
from common.wire import walk as walk_pure
from tests.unit.common.wire.frames import LIST, STRUCT, field, header, list_of, struct_of

try:
    from common.wire import _native
except ImportError:
    _native = None

WALKS = ("walk_header", "walk_send", "walk_pull")


def outcome(walker, walk: str, frame: bytes):
    """What came out, comparable between the twins."""
    try:
        return getattr(walker, walk)(frame)
    except WireError as error:
        return error.rule, error.at, error.field, error.seqid


def check_frame(frame: bytes) -> bool:
    """Assert all that must hold for `frame`; whether it was a call that walks."""
    walked = False
    for walk in WALKS:
        found = outcome(walk_pure, walk, frame)
        if _native is not None:
            assert outcome(_native, walk, frame) == found
        if isinstance(found, calls.SendCall | calls.PullCall):
            walked = True
            check_decoded(frame, found)
    return walked


def check_decoded(frame: bytes, call: calls.SendCall | calls.PullCall) -> None:
    name, seqid, arguments = contract.decode_call(frame)
    assert seqid == call.seqid
    request = arguments.request
    assert decode_alone(name, field(STRUCT, 1, call.credential)).credential == request.credential
    if isinstance(call, calls.SendCall):
        check_send(call, request)
    else:
        check_pull(call, request)


def decode_alone(name: str, request_fields: bytes):
    frame = header(name.encode()) + struct_of(field(STRUCT, 1, struct_of(request_fields)))
    return contract.decode_call(frame)[2].request


def check_send(call: calls.SendCall, request) -> None:
    assert (call.timeout_ms, call.durability, call.reply_wait_ms) == (
        request.timeout_ms or 0,
        request.durability or 0,
        request.reply_wait_ms or 0,
    )
    assert len(call.messages) == len(request.messages)
    for found, decoded in zip(call.messages, request.messages, strict=True):
        assert decode_alone("send", field(LIST, 2, list_of(STRUCT, found.encoded))).messages == [decoded]
        if found.fault:
            continue
        assert (found.topic, found.key, found.tag, found.id) == (decoded.topic, decoded.key, decoded.tag, decoded.id)
        assert (found.body, found.reply_to) == (decoded.body or b"", decoded.reply_to or b"")
        assert (found.deliver_at_ms, found.delay_ms) == (decoded.deliver_at_ms or 0, decoded.delay_ms or 0)
        assert found.operation == (decoded.operation or 0)
        assert flags_of(decoded) == found.flags


def check_pull(call: calls.PullCall, request) -> None:
    if not call.fault:
        assert (call.group, call.topics) == (request.group, request.topics or None)
        assert (call.max_messages, call.wait_ms) == (unless_unset(request.max_messages, 32), request.wait_ms or 0)
        assert call.max_bytes == unless_unset(request.max_bytes, 1024 * 1024)
        assert call.invisible_ms == (request.invisible_ms or -1)
    assert call.position_count == len(request.positions or [])
    assert bool(call.flags & calls.HAS_TOPICS_AFTER) == (request.topics_after is not None)
    assert len(call.acks) == len(request.acks or [])
    for found, decoded in zip(call.acks, request.acks or [], strict=True):
        assert flags_of(decoded) == found.flags
        if not found.fault:
            assert (found.receipt, found.verdict) == (decoded.receipt, decoded.verdict or 0)
            assert (found.delay_ms, found.reason) == (unless_unset(decoded.delay_ms, -1), decoded.reason)


def unless_unset(value, default):
    return default if value is None else value


def flags_of(decoded) -> int:
    """Bit id - 1 of each field that is set."""
    return sum(
        1 << (number - 1) for number, spec in decoded.thrift_spec.items() if getattr(decoded, spec[1]) is not None
    )
