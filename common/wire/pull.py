"""PullRequest with its acknowledgements and positions.

The reference of `_pull.pxi`, check by check in the same order.
"""

from common.wire import calls
from common.wire.calls import HAS_RECEIPT, POSITIONS_MAX, PULL_TOPICS_MAX
from common.wire.cursor import STRING, STRUCT, Cursor, valid_name, valid_utf8
from common.wire.faults import AckFault, CallFault
from common.wire.send import walk_credential

_PULL, _PULL_TYPES = 0x500, (0, 12, 11, 15, 8, 8, 8, 15, 15, 8, 11)
_ACK, _ACK_TYPES = 0x600, (0, 11, 8, 8, 11)
_POSITION, _POSITION_TYPES = 0x700, (0, 11, 8, 10, 10, 10)
_IN_REQUEST, _IN_ELEMENT = 2, 4

_FLAGS = {
    3: calls.HAS_TOPICS, 7: calls.HAS_ACKS, 8: calls.HAS_POSITIONS, 9: calls.HAS_INVISIBLE, 10: calls.HAS_TOPICS_AFTER,
}  # fmt: skip


def _name(c: Cursor, call: calls.PullCall, fault: CallFault) -> tuple[int, int]:
    span = c.string()
    if not call.fault and not valid_name(c.slice(*span)):
        call.fault = fault
    return span


def _ack_field(c: Cursor, ack: calls.Ack, field_id: int) -> int:
    if field_id == 1:
        ack.receipt_start, ack.receipt_size = c.string()
        return 0
    if field_id == 2:
        ack.verdict = c.i32()
        return 0 if 0 <= ack.verdict <= 4 else AckFault.VERDICT
    if field_id == 3:
        ack.delay_ms = c.i32()
        return AckFault.DELAY if ack.delay_ms < 0 else 0
    ack.reason_start, ack.reason_size = c.string()
    return 0 if valid_utf8(c.slice(ack.reason_start, ack.reason_size)) else AckFault.REASON_TEXT


def _walk_ack(c: Cursor) -> calls.Ack:
    ack = calls.Ack(c.data)
    for field_id in c.fields(_ACK_TYPES, _ACK, _IN_ELEMENT):
        ack.flags |= 1 << (field_id - 1)
        fault = _ack_field(c, ack, field_id)
        ack.fault = ack.fault or fault
    if not ack.fault and not ack.flags & HAS_RECEIPT:
        ack.fault = AckFault.RECEIPT_MISSING
    return ack


def _walk_position(c: Cursor, call: calls.PullCall) -> None:
    seen = set()
    for field_id in c.fields(_POSITION_TYPES, _POSITION, _IN_ELEMENT):
        seen.add(field_id)
        if field_id == 1:
            _name(c, call, CallFault.TOPIC_NAME)
        else:
            c.skip(_POSITION_TYPES[field_id], _IN_ELEMENT)
    c.all_seen(seen, (1, 2), _POSITION)


def _lists(c: Cursor, call: calls.PullCall, field_id: int, acks_max: int) -> None:
    if field_id == 3:
        count = c.list_of(STRING, PULL_TOPICS_MAX, _PULL + 3)
        call.spans = [_name(c, call, CallFault.TOPIC_NAME) for _ in range(count)]
    elif field_id == 7:
        count = c.list_of(STRUCT, acks_max, _PULL + 7)
        call.acks = [_walk_ack(c) for _ in range(count)]
    else:
        call.position_count = c.list_of(STRUCT, POSITIONS_MAX, _PULL + 8)
        for _ in range(call.position_count):
            _walk_position(c, call)


def _option(c: Cursor, call: calls.PullCall, field_id: int) -> None:
    value = c.i32()
    if field_id == 4:
        call.max_messages, fault = value, CallFault.MAX_MESSAGES
    elif field_id == 5:
        call.max_bytes, fault = value, CallFault.MAX_BYTES
    elif field_id == 6:
        call.wait_ms, fault = value, CallFault.WAIT
    else:
        call.invisible_ms, fault = value or -1, CallFault.INVISIBLE
    if not call.fault and value < 0:
        call.fault = fault


def _reset(call: calls.PullCall) -> None:
    """The contract's defaults; a second request struct in one call starts from them too."""
    call.flags = call.position_count = call.wait_ms = 0
    call.max_messages, call.max_bytes, call.invisible_ms = 32, 1024 * 1024, -1
    call.spans, call.acks = [], []


def pull_request(c: Cursor, call: calls.PullCall, acks_max: int) -> None:
    seen = set()
    _reset(call)
    for field_id in c.fields(_PULL_TYPES, _PULL, _IN_REQUEST):
        seen.add(field_id)
        if field_id == 1:
            walk_credential(c, call)
        elif field_id == 2:
            call.group_start, call.group_size = _name(c, call, CallFault.GROUP_NAME)
        elif field_id in (3, 7, 8):
            _lists(c, call, field_id, acks_max)
        elif field_id == 10:
            c.string()
        else:
            _option(c, call, field_id)
    call.flags = sum(flag for field_id, flag in _FLAGS.items() if field_id in seen)
    c.all_seen(seen, (1, 2), _PULL)
