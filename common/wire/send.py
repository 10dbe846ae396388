"""SendRequest and its messages. The reference of `_send.pxi`, check by check in the same order."""

from common.wire import calls
from common.wire.calls import HAS_DELAY, HAS_DELIVER_AT, HAS_ID, HAS_LOOP, HAS_REPLY_TO, HAS_TOPIC
from common.wire.cursor import STRING, STRUCT, Cursor, valid_name, valid_utf8
from common.wire.faults import CallFault, MessageFault, WireFault

KEY_BYTES_MAX = 4096
TAG_BYTES_MAX = 128
ID_CHARS_MAX = 64
LOOP_PREFIX = b"penstock-loop-"
PROPERTIES_MAX = 64
PROPERTIES_BYTES_MAX = 32 * 1024
BESIDE_BODY_BYTES_MAX = 64 * 1024
TIME_MS_MAX = 253402300799999  # the last millisecond of year 9999

_CREDENTIAL, _CREDENTIAL_TYPES = 0x300, (0, 11, 11, 10, 11)
_MESSAGE, _MESSAGE_TYPES = 0x400, (0, 11, 11, 11, 11, 13, 11, 10, 10, 8, 11)
_SEND, _SEND_TYPES = 0x200, (0, 12, 15, 8, 8, 8)
_IN_REQUEST, _IN_CREDENTIAL, _IN_ELEMENT = 2, 3, 4

_CONTROL = bytes(range(0x21)) + b"\x7f"


def walk_credential(c: Cursor, call: calls.SendCall | calls.PullCall) -> None:
    seen = set()
    call.credential_start = c.at
    for field_id in c.fields(_CREDENTIAL_TYPES, _CREDENTIAL, _IN_CREDENTIAL):
        seen.add(field_id)
        if field_id == 3:
            c.i64()
            continue
        text = c.string()
        if field_id != 4 and not call.fault and not valid_utf8(c.slice(*text)):
            call.fault = CallFault.CREDENTIAL_TEXT
    call.credential_size = c.at - call.credential_start
    c.all_seen(seen, (1, 2, 3, 4), _CREDENTIAL)


def _check_id(text: bytes) -> int:
    if not 0 < len(text) <= 4 * ID_CHARS_MAX:
        return MessageFault.ID_SIZE
    if not valid_utf8(text):
        return MessageFault.ID_TEXT
    return MessageFault.ID_SIZE if len(text.decode()) > ID_CHARS_MAX else 0


def _check_tag(text: bytes) -> int:
    if not text:
        return MessageFault.TAG_WORD
    if len(text) > TAG_BYTES_MAX:
        return MessageFault.TAG_SIZE
    if len(text.translate(None, _CONTROL)) < len(text):
        return MessageFault.TAG_WORD
    return 0 if valid_utf8(text) else MessageFault.TAG_TEXT


def _check_key(text: bytes) -> int:
    if len(text) > KEY_BYTES_MAX:
        return MessageFault.KEY_SIZE
    return 0 if valid_utf8(text) else MessageFault.KEY_TEXT


def _walk_properties(c: Cursor, m: calls.Message) -> int:
    at, total = c.at, 0
    key, value, count = c.map()
    if key != STRING or value != STRING:
        c.fail(WireFault.FIELD_TYPE, at + (key == STRING), _MESSAGE + 5)
    fault = MessageFault.PROPERTIES_COUNT if count > PROPERTIES_MAX else 0
    for number in range(2 * count):
        start, size = c.string()
        total += size
        if number % 2 == 0 and size > len(LOOP_PREFIX) and c.slice(start, size).startswith(LOOP_PREFIX):
            m.flags |= HAS_LOOP
        if fault:
            continue
        if total > PROPERTIES_BYTES_MAX:
            fault = MessageFault.PROPERTIES_SIZE
        elif not valid_utf8(c.slice(start, size)):
            fault = MessageFault.PROPERTIES_TEXT
    return fault


def _text_field(c: Cursor, m: calls.Message, field_id: int) -> int:
    text = start, size = c.string()
    if field_id == 1:
        m.topic_start, m.topic_size = text
        return 0 if valid_utf8(c.slice(start, size)) else MessageFault.TOPIC_TEXT
    if field_id == 3:
        m.key_start, m.key_size = text
        return _check_key(c.slice(start, size))
    if field_id == 4:
        m.tag_start, m.tag_size = text
        return _check_tag(c.slice(start, size))
    m.id_start, m.id_size = text
    return _check_id(c.slice(start, size))


def _message_field(c: Cursor, m: calls.Message, field_id: int, body_bytes_max: int) -> int:
    """Read one known field and check what can be checked of it alone; the topic's name waits for reply_to."""
    if field_id in (1, 3, 4, 6):
        return _text_field(c, m, field_id)
    if field_id == 2:
        m.body_start, m.body_size = c.string()
        return MessageFault.BODY_SIZE if m.body_size > body_bytes_max else 0
    if field_id == 5:
        return _walk_properties(c, m)
    if field_id == 7:
        m.deliver_at_ms = c.i64()
        return 0 if 0 <= m.deliver_at_ms <= TIME_MS_MAX else MessageFault.DELIVER_AT
    if field_id == 8:
        m.delay_ms = c.i64()
        return 0 if 0 <= m.delay_ms <= TIME_MS_MAX else MessageFault.DELAY
    if field_id == 9:
        m.operation = c.i32()
        return 0 if 0 <= m.operation <= 1 else MessageFault.OPERATION
    m.reply_to_start, m.reply_to_size = c.string()
    return 0


def _check_message(c: Cursor, m: calls.Message) -> int:
    """Check the rules about several fields, for a message whose fields are valid one by one."""
    if not m.flags & HAS_TOPIC:
        return MessageFault.TOPIC_MISSING
    if not m.flags & HAS_REPLY_TO and not valid_name(c.slice(m.topic_start, m.topic_size)):
        return MessageFault.TOPIC_NAME
    if m.flags & HAS_DELIVER_AT and m.flags & HAS_DELAY:
        return MessageFault.DELIVER_AT_AND_DELAY
    if m.flags & HAS_LOOP and not m.operation and not m.flags & (HAS_DELIVER_AT | HAS_DELAY):
        return MessageFault.LOOP_WITHOUT_DELAY
    if m.operation == 1 and not m.flags & HAS_ID:
        return MessageFault.CANCEL_ID
    return MessageFault.MESSAGE_SIZE if m.size - m.body_size > BESIDE_BODY_BYTES_MAX else 0


def _walk_message(c: Cursor, body_bytes_max: int) -> calls.Message:
    m = calls.Message(c.data, c.at)
    for field_id in c.fields(_MESSAGE_TYPES, _MESSAGE, _IN_ELEMENT):
        m.flags |= 1 << (field_id - 1)
        fault = _message_field(c, m, field_id, body_bytes_max)
        m.fault = m.fault or fault
    m.size = c.at - m.start
    m.fault = m.fault or _check_message(c, m)
    return m


def _option(c: Cursor, call: calls.SendCall, field_id: int) -> int:
    value = c.i32()
    if field_id == 3:
        call.timeout_ms = value
        return CallFault.TIMEOUT if value < 0 else 0
    if field_id == 4:
        call.durability = value
        return 0 if 0 <= value <= 4 else CallFault.DURABILITY
    call.reply_wait_ms = value
    return CallFault.REPLY_WAIT if value < 0 else 0


def send_request(c: Cursor, call: calls.SendCall, messages_max: int, body_bytes_max: int) -> None:
    seen = set()
    call.timeout_ms = call.durability = call.reply_wait_ms = 0
    for field_id in c.fields(_SEND_TYPES, _SEND, _IN_REQUEST):
        seen.add(field_id)
        if field_id == 1:
            walk_credential(c, call)
        elif field_id == 2:
            count = c.list_of(STRUCT, messages_max, _SEND + 2)
            call.messages = [_walk_message(c, body_bytes_max) for _ in range(count)]
        else:
            fault = _option(c, call, field_id)
            call.fault = call.fault or fault
    if not call.fault and not call.messages:
        call.fault = CallFault.NO_MESSAGES
    elif not call.fault and call.reply_wait_ms > 0 and len(call.messages) != 1:
        call.fault = CallFault.REPLY_WAIT_COUNT
    c.all_seen(seen, (1, 2), _SEND)
