"""Catalogue rows TH6, TH7 and TH8 for sends: one bad message is named by its fault and its neighbours are not touched."""

import pytest

from common.wire import WireError
from common.wire.calls import HAS_BODY, HAS_DELAY, HAS_DELIVER_AT, HAS_ID, HAS_KEY, HAS_TOPIC
from common.wire.faults import CallFault, MessageFault, WireFault
from tests.unit.common.wire.frames import I32, I64, MAP, STRING, field, i32, i64, map_of, message, send, text

KIB = 1024


def fault_of(walker, *fields: bytes, topic: bytes | None = b"pay", **limits) -> int:
    """The fault of one message between two good ones."""
    good = message()
    call = walker.walk_send(send(good, message(*fields, topic=topic), good), **limits)
    assert (call.fault, call.messages[0].fault, call.messages[2].fault) == (0, 0, 0)
    assert call.messages[2].topic == "pay"
    return call.messages[1].fault


def string(field_id: int, value: bytes) -> bytes:
    return field(STRING, field_id, text(value))


def test_each_field_of_a_message_is_found_where_it_lies(walker):
    fields = (string(2, b"body"), string(3, "schlüssel".encode()), string(4, b"eu"), string(6, b"order-1"))
    plain = message(*fields, field(I64, 7, i64(5)), field(I32, 9, i32(1)), string(10, b"\xff\x00"))
    found = walker.walk_send(send(plain)).messages[0]
    assert (found.fault, found.encoded, found.body, found.reply_to) == (0, plain, b"body", b"\xff\x00")
    assert (found.topic, found.key, found.tag, found.id) == ("pay", "schlüssel", "eu", "order-1")
    assert (found.deliver_at_ms, found.delay_ms, found.operation) == (5, 0, 1)


def test_flags_tell_unset_from_empty_or_zero(walker):
    found = walker.walk_send(send(message(string(2, b""), string(3, b""), field(I64, 8, i64(0))))).messages[0]
    assert found.flags == HAS_TOPIC | HAS_BODY | HAS_KEY | HAS_DELAY
    assert (found.key, found.tag, found.id) == ("", None, None)


@pytest.mark.parametrize("topic", [b"a", b"a" * 249, b"A.b_c-9", b"...", b"..a", b"-", b"0"])
def test_a_topic_by_the_rule_is_taken(walker, topic):
    assert fault_of(walker, topic=topic) == 0


@pytest.mark.parametrize(
    "topic",
    [
        b"",
        b".",
        b"..",
        b"a" * 250,
        b"a/b",
        b"%2e",
        b"\n",
        b"pay\n",
        b"%RETRY%x",
        b"a b",
        b"a\0",
        b"a:b",
        b"{a}",
        b"a*",
        "pä".encode(),
    ],
)
def test_a_topic_outside_the_rule_faults_its_message_alone(walker, topic):
    assert fault_of(walker, topic=topic) == MessageFault.TOPIC_NAME


def test_a_topic_that_is_no_utf8_or_missing_faults_its_message_alone(walker):
    assert fault_of(walker, topic=b"\xff") == MessageFault.TOPIC_TEXT
    assert fault_of(walker, topic=None) == MessageFault.TOPIC_MISSING


def test_a_reply_needs_a_topic_field_but_not_a_topic_name(walker):
    assert fault_of(walker, string(10, b"token"), topic=b"") == 0
    assert fault_of(walker, string(10, b"token"), topic=None) == MessageFault.TOPIC_MISSING


BAD_UTF8 = [
    b"\xff",
    b"\x80",
    b"\xc0\x80",  # an overlong NUL
    b"\xc3",  # cut short
    b"\xe2\x82",
    b"\xe0\x80\xaf",  # overlong
    b"\xed\xa0\x80",  # a surrogate
    b"\xed\xbf\xbf",
    b"\xf0\x80\x80\x80",
    b"\xf4\x90\x80\x80",  # above U+10FFFF
    b"\xf5\x80\x80\x80",
    b"abcdefgh\xfe",  # behind a whole word of ASCII
    b"\xe2\x28\xa1",
]


@pytest.mark.parametrize("bad", BAD_UTF8)
def test_text_that_is_no_utf8_faults_its_message_and_names_the_field(walker, bad):
    assert fault_of(walker, string(3, bad)) == MessageFault.KEY_TEXT
    assert fault_of(walker, string(4, bad)) == MessageFault.TAG_TEXT
    assert fault_of(walker, string(6, bad)) == MessageFault.ID_TEXT
    assert fault_of(walker, field(MAP, 5, map_of((bad, b"v")))) == MessageFault.PROPERTIES_TEXT
    assert fault_of(walker, field(MAP, 5, map_of((b"k", b"v"), (b"k2", bad)))) == MessageFault.PROPERTIES_TEXT


@pytest.mark.parametrize("text_", ["😀", "שלום", "\ud7ff\ue000\U0010ffff", "\u0080", "e\u0301", "\ufeff", "abcdefgh€"])
def test_any_valid_utf8_is_taken(walker, text_):
    raw = text_.encode()
    assert fault_of(walker, string(3, raw), string(4, raw), string(6, raw), field(MAP, 5, map_of((raw, raw)))) == 0


def test_nul_is_text_in_keys_and_properties(walker):
    assert fault_of(walker, string(3, b"a\0b"), field(MAP, 5, map_of((b"\0", b"\0")))) == 0


def test_a_key_holds_4096_bytes_and_no_more(walker):
    assert fault_of(walker, string(3, b"k" * 4096)) == 0
    assert fault_of(walker, string(3, b"k" * 4097)) == MessageFault.KEY_SIZE
    assert fault_of(walker, string(3, b"k" * KIB * KIB)) == MessageFault.KEY_SIZE


@pytest.mark.parametrize("tag", [b"", b"a b", b"\n", b"a\t", b"\0", b"\x7f", b" "])
def test_a_tag_that_is_not_one_word_is_refused(walker, tag):
    assert fault_of(walker, string(4, tag)) == MessageFault.TAG_WORD


def test_a_tag_holds_128_bytes_and_no_more(walker):
    assert fault_of(walker, string(4, b"t" * 128)) == 0
    assert fault_of(walker, string(4, b"t" * 129)) == MessageFault.TAG_SIZE


@pytest.mark.parametrize("sign", ["i", "ü", "€", "😀"])
def test_an_id_has_1_to_64_characters_however_many_bytes_they_take(walker, sign):
    assert fault_of(walker, string(6, (sign * 64).encode())) == 0
    assert fault_of(walker, string(6, (sign * 65).encode())) == MessageFault.ID_SIZE
    assert fault_of(walker, string(6, b"")) == MessageFault.ID_SIZE


def test_properties_have_at_most_64_entries_and_32_kib(walker):
    def entries(count, size):
        return field(MAP, 5, map_of(*[(b"%04d" % i, b"v" * size) for i in range(count)]))

    assert fault_of(walker, entries(64, 4)) == 0
    assert fault_of(walker, entries(65, 4)) == MessageFault.PROPERTIES_COUNT
    assert fault_of(walker, entries(32, 1020)) == 0
    assert fault_of(walker, entries(32, 1021)) == MessageFault.PROPERTIES_SIZE
    assert fault_of(walker, field(MAP, 5, map_of((b"a", b"1"), (b"a", b"2")))) == 0


@pytest.mark.parametrize("size", [0, 1, 4 * KIB * KIB])
def test_a_body_up_to_the_limit_is_taken(walker, size):
    assert fault_of(walker, string(2, bytes(size))) == 0


def test_a_body_above_the_limit_is_too_large(walker):
    assert fault_of(walker, string(2, bytes(4 * KIB * KIB + 1))) == MessageFault.BODY_SIZE
    assert fault_of(walker, string(2, bytes(100)), body_bytes_max=100) == 0
    assert fault_of(walker, string(2, bytes(101)), body_bytes_max=100) == MessageFault.BODY_SIZE


def test_fields_beside_the_body_are_bounded_too_known_or_not(walker):
    assert fault_of(walker, string(99, bytes(65000)), string(2, bytes(KIB * KIB))) == 0
    assert fault_of(walker, string(99, bytes(65536))) == MessageFault.MESSAGE_SIZE
    assert fault_of(walker, string(10, bytes(65536))) == MessageFault.MESSAGE_SIZE


@pytest.mark.parametrize("value", [-1, -(2**63), 253402300800000, 2**63 - 1])
def test_times_outside_the_calendar_are_refused(walker, value):
    assert fault_of(walker, field(I64, 7, i64(value))) == MessageFault.DELIVER_AT
    assert fault_of(walker, field(I64, 8, i64(value))) == MessageFault.DELAY


def test_a_loop_without_a_delay_is_refused(walker):
    loop, other = (field(MAP, 5, map_of((name, b"3"))) for name in (b"penstock-loop-times", b"penstock-looping"))
    delay, cancel = field(I64, 8, i64(5)), field(I32, 9, i32(1))
    assert fault_of(walker, loop) == MessageFault.LOOP_WITHOUT_DELAY
    assert fault_of(walker, loop, delay) == fault_of(walker, other) == 0
    assert fault_of(walker, loop, cancel, string(6, b"id")) == 0
    value_alone = field(MAP, 5, map_of((b"name", b"penstock-loop-times")))
    assert fault_of(walker, value_alone) == 0


@pytest.mark.parametrize("value", [0, 1, 253402300799999])
def test_times_inside_the_calendar_are_taken_one_of_the_two_at_most(walker, value):
    at, delay = field(I64, 7, i64(value)), field(I64, 8, i64(value))
    assert (fault_of(walker, at), fault_of(walker, delay)) == (0, 0)
    assert fault_of(walker, at, delay) == MessageFault.DELIVER_AT_AND_DELAY
    found = walker.walk_send(send(message(at))).messages[0]
    assert (found.deliver_at_ms, found.flags) == (value, HAS_TOPIC | HAS_DELIVER_AT)


@pytest.mark.parametrize("value", [-1, 2, 2**31 - 1])
def test_an_unknown_operation_is_refused(walker, value):
    assert fault_of(walker, field(I32, 9, i32(value))) == MessageFault.OPERATION


def test_a_cancel_needs_the_id_of_what_it_withdraws(walker):
    assert fault_of(walker, field(I32, 9, i32(1))) == MessageFault.CANCEL_ID
    assert fault_of(walker, field(I32, 9, i32(1)), string(6, b"x")) == 0


def test_the_first_fault_in_the_order_of_the_bytes_is_reported(walker):
    assert fault_of(walker, string(6, b""), string(4, b""), topic=b"/") == MessageFault.ID_SIZE
    assert fault_of(walker, string(4, b""), string(6, b""), topic=b"/") == MessageFault.TAG_WORD


def test_a_call_without_messages_parses_and_is_flagged(walker):
    call = walker.walk_send(send())
    assert (call.messages, call.fault) == ([], CallFault.NO_MESSAGES)


def test_a_call_holds_1000_messages_and_one_more_is_refused(walker):
    call = walker.walk_send(send(*[message()] * 1000))
    assert (len(call.messages), call.fault) == (1000, 0)
    with pytest.raises(WireError) as caught:
        walker.walk_send(send(*[message()] * 1001))
    assert (caught.value.rule, caught.value.field) == (WireFault.LIST_TOO_LONG, "SendRequest.messages")
    assert str(caught.value).startswith("SendRequest.messages: at most 1000 per call (byte ")
    with pytest.raises(WireError):
        walker.walk_send(send(message(), message()), messages_max=1)


@pytest.mark.parametrize(
    ("field_id", "bad", "fault"),
    [
        (3, (-1, -(2**31)), CallFault.TIMEOUT),
        (4, (-1, 5, 2**31 - 1), CallFault.DURABILITY),
        (5, (-1, -(2**31)), CallFault.REPLY_WAIT),
    ],
)
def test_an_option_outside_its_range_flags_the_call(walker, field_id, bad, fault):
    for value in bad:
        assert walker.walk_send(send(message(), more=field(I32, field_id, i32(value)))).fault == fault


def test_options_in_range_are_given_as_they_are_and_0_when_unset(walker):
    options = field(I32, 3, i32(2**31 - 1)) + field(I32, 4, i32(4)) + field(I32, 5, i32(1))
    call = walker.walk_send(send(message(), more=options))
    assert (call.fault, call.timeout_ms, call.durability, call.reply_wait_ms) == (0, 2**31 - 1, 4, 1)
    call = walker.walk_send(send(message()))
    assert (call.fault, call.timeout_ms, call.durability, call.reply_wait_ms) == (0, 0, 0, 0)


def test_a_request_with_a_reply_carries_exactly_one_message(walker):
    wait = field(I32, 5, i32(100))
    assert walker.walk_send(send(message(), more=wait)).fault == 0
    assert walker.walk_send(send(message(), message(), more=wait)).fault == CallFault.REPLY_WAIT_COUNT
    assert walker.walk_send(send(message(), message(), more=field(I32, 5, i32(0)))).fault == 0


def test_equal_credentials_give_equal_bytes_and_bad_text_in_one_flags_the_call(walker):
    first, second = walker.walk_send(send(message())), walker.walk_send(send(message(), message()))
    assert first.credential == second.credential
    bad = first.credential.replace(b"shop", b"sh\xffp")
    assert walker.walk_send(send(message(), credential=bad)).fault == CallFault.CREDENTIAL_TEXT
    signature = first.credential.replace(b"s" * 32, b"\xff" * 32)
    assert walker.walk_send(send(message(), credential=signature)).fault == 0


def test_faults_have_an_id_flag_only_when_the_id_is_there(walker):
    assert walker.walk_send(send(message(string(6, b"x")))).messages[0].flags & HAS_ID
