"""Catalogue rows TH4 and TH5: types, ids, counts, sizes and nesting that lie."""

import pytest

from common.wire import WireError
from common.wire.faults import WireFault
from tests.unit.common.wire import frames as f
from tests.unit.common.wire.frames import (
    BYTE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STOP,
    STRING,
    STRUCT,
    field,
    header,
    i32,
    i64,
    list_of,
    map_of,
    message,
    nested,
    pull,
    send,
    struct_of,
    text,
)

ILLEGAL_TYPES = [1, 5, 7, 9, 16, 17, 18, 255]


def refused(walk, frame):
    with pytest.raises(WireError) as caught:
        walk(frame)
    return caught.value


@pytest.mark.parametrize("kind", ILLEGAL_TYPES)
def test_an_illegal_type_is_refused_in_field_list_set_and_map(walker, kind):
    element = bytes([kind]) + i32(0)
    for bad in (
        field(kind, 99, i64(0)),
        field(LIST, 99, element),
        field(SET, 99, element),
        field(MAP, 99, bytes([BYTE]) + element),
        field(MAP, 99, bytes([kind, BYTE]) + i32(0)),
    ):
        assert refused(walker.walk_send, send(message(), more=bad)).rule == WireFault.TYPE
        assert refused(walker.walk_send, send(message(bad))).rule == WireFault.TYPE


def test_type_zero_is_refused_as_an_element_even_of_an_empty_list(walker):
    assert refused(walker.walk_send, send(message(field(LIST, 99, b"\0" + i32(0))))).rule == WireFault.TYPE
    # The nine bytes that hold thriftpy2's decoder for seconds.
    assert refused(walker.walk_send, send(message(field(LIST, 99, b"\0" + i32(2**31 - 1))))).rule == WireFault.TYPE


@pytest.mark.parametrize("count", [-1, -(2**31), 2**31 - 1, 1000])
@pytest.mark.parametrize("kind", [LIST, SET, MAP])
def test_a_count_that_is_negative_or_not_backed_by_bytes_is_refused(walker, kind, count):
    head = bytes([BYTE, STRING]) if kind == MAP else bytes([STRING])
    assert refused(walker.walk_send, send(message(field(kind, 99, head + i32(count))))).rule == WireFault.COUNT


@pytest.mark.parametrize("kind", [BYTE, I16, I32, I64, STRING, STRUCT, MAP, LIST])
def test_a_count_is_held_against_the_least_size_of_its_elements(walker, kind):
    least = {BYTE: 1, I16: 2, I32: 4, I64: 8, STRING: 4, STRUCT: 1, MAP: 6, LIST: 5}[kind]
    left = 3  # STOP of message, request and arguments
    fits = (40 + left) // least
    frame = send(message(field(LIST, 99, bytes([kind]) + i32(fits + 1) + bytes(40))))
    assert refused(walker.walk_send, frame).rule == WireFault.COUNT


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 1000])
def test_a_string_size_that_is_negative_or_reaches_past_the_frame_is_refused(walker, size):
    rule = WireFault.SIZE if size < 0 else WireFault.TRUNCATED
    for field_id in (2, 99):
        assert refused(walker.walk_send, send(message(field(STRING, field_id, i32(size))))).rule == rule


@pytest.mark.parametrize("kind", [STRUCT, LIST, SET, MAP])
def test_nesting_ends_at_sixteen_levels_wherever_it_starts(walker, kind):
    # An unknown field of a message lies inside arguments, request, list and message: 12 levels are left.
    walker.walk_send(send(message(field(kind, 99, nested(kind, 12)))))
    walker.walk_send(send(message(), more=field(kind, 99, nested(kind, 14))))
    walker.walk_send(send(message(), arguments_more=field(kind, 99, nested(kind, 15))))
    for bad in (
        send(message(field(kind, 99, nested(kind, 13)))),
        send(message(), more=field(kind, 99, nested(kind, 15))),
        send(message(), arguments_more=field(kind, 99, nested(kind, 16))),
        pull(field(LIST, 7, list_of(STRUCT, struct_of(field(kind, 99, nested(kind, 13)))))),
    ):
        walk = walker.walk_pull if b"pull" in bad[:16] else walker.walk_send
        assert refused(walk, bad).rule == WireFault.DEPTH


@pytest.mark.parametrize("kind", [STRUCT, LIST, MAP])
@pytest.mark.parametrize("levels", [17, 1000, 100_000])
def test_deep_nesting_is_refused_without_recursion(walker, kind, levels):
    assert refused(walker.walk_send, send(message(field(kind, 99, nested(kind, levels))))).rule == WireFault.DEPTH


@pytest.mark.parametrize("field_id", [-32768, -1, 0, 11, 99, 32767])
def test_unknown_fields_are_stepped_over_at_every_level(walker, field_id):
    unknown = field(MAP, field_id, map_of((b"a", b"\xff"), (b"a", b"c"))) + field(STRUCT, field_id, struct_of())
    call = walker.walk_send(send(message(unknown), more=unknown, arguments_more=unknown))
    assert (call.fault, call.messages[0].fault, call.messages[0].topic) == (0, 0, "pay")


def test_unknown_elements_of_fixed_size_are_stepped_over(walker):
    unknown = field(LIST, 99, bytes([I64]) + i32(1000) + bytes(8000))
    unknown += field(MAP, 98, bytes([I16, I32]) + i32(100) + bytes(600))
    assert walker.walk_send(send(message(unknown))).messages[0].size == len(message(unknown))


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (send(message(field(I32, 2, i32(0)))), "Message.body"),
        (send(message(field(I32, 7, i32(0)))), "Message.deliver_at_ms"),
        (send(message(field(STRING, 9, text(b"")))), "Message.operation"),
        (send(message(), more=field(I64, 3, i64(0))), "SendRequest.timeout_ms"),
        (header() + struct_of(field(STRING, 1, text(b""))), "request"),
        (send(message(), credential=field(I32, 1, i32(1)) + STOP), "Credential.app"),
        (pull(field(STRING, 4, text(b""))), "PullRequest.max_messages"),
        (pull(field(LIST, 7, list_of(STRUCT, struct_of(field(I32, 1, i32(0)))))), "Ack.receipt"),
        (pull(field(LIST, 8, list_of(STRUCT, struct_of(field(I64, 2, i64(0)))))), "Position.queue"),
    ],
)
def test_a_known_field_of_another_type_is_a_typed_error_that_names_it(walker, frame, name):
    walk = walker.walk_pull if b"pull" in frame[:16] else walker.walk_send
    fault = refused(walk, frame)
    assert (fault.rule, fault.field, fault.seqid) == (WireFault.FIELD_TYPE, name, 7)
    assert name in fault.sentence


def test_a_known_list_or_map_of_other_elements_is_a_typed_error(walker):
    of_numbers = struct_of(field(STRUCT, 1, f.CREDENTIAL), field(LIST, 2, list_of(I32, i32(1))))
    fault = refused(walker.walk_send, header() + struct_of(field(STRUCT, 1, of_numbers)))
    assert (fault.rule, fault.field) == (WireFault.FIELD_TYPE, "SendRequest.messages")
    for head in (bytes([STRING, I32]), bytes([I32, STRING])):
        fault = refused(walker.walk_send, send(message(field(MAP, 5, head + i32(0)))))
        assert (fault.rule, fault.field) == (WireFault.FIELD_TYPE, "Message.properties")


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (header() + struct_of(), "request"),
        (header() + struct_of(field(STRUCT, 1, struct_of())), "SendRequest.credential"),
        (header() + struct_of(field(STRUCT, 1, struct_of(field(STRUCT, 1, f.CREDENTIAL)))), "SendRequest.messages"),
        (send(message(), credential=struct_of()), "Credential.app"),
        (send(message(), credential=f.CREDENTIAL[:-40] + STOP), "Credential.signature"),
        (header(b"pull") + struct_of(field(STRUCT, 1, struct_of(field(STRUCT, 1, f.CREDENTIAL)))), "PullRequest.group"),
        (pull(field(LIST, 8, list_of(STRUCT, struct_of(field(STRING, 1, text(b"t")))))), "Position.queue"),
    ],
)
def test_a_missing_required_field_is_a_typed_error_that_names_it(walker, frame, name):
    walk = walker.walk_pull if b"pull" in frame[:16] else walker.walk_send
    fault = refused(walk, frame)
    assert (fault.rule, fault.field, fault.seqid) == (WireFault.MISSING, name, 7)


def test_all_containers_of_a_call_together_hold_100000_elements(walker):
    half = field(LIST, 99, bytes([BYTE]) + i32(50_000) + bytes(50_000))
    most = field(LIST, 98, bytes([BYTE]) + i32(49_999) + bytes(49_999))
    walker.walk_send(send(message(), more=half + most))  # the one message is an element too
    assert refused(walker.walk_send, send(message(), more=half + half)).rule == WireFault.TOO_MANY_ELEMENTS
    repeated = field(LIST, 2, list_of(STRUCT, *[message()] * 1000))
    assert refused(walker.walk_send, send(more=repeated * 101)).rule == WireFault.TOO_MANY_ELEMENTS
    assert refused(walker.walk_send, send(message(field(MAP, 5, map_of(*[(b"", b"")] * 100_000))))).rule == (
        WireFault.TOO_MANY_ELEMENTS
    )


def test_of_a_field_that_comes_twice_the_last_value_counts(walker):
    twice = field(STRING, 1, text(b"other")) + field(STRING, 6, text(b"b"))
    found = walker.walk_send(send(message(field(STRING, 6, text(b"a")), twice))).messages[0]
    assert (found.fault, found.topic, found.id) == (0, "other", "b")


def test_of_a_request_that_comes_twice_nothing_of_the_first_remains(walker):
    first = send(message(), message(), more=field(I32, 3, i32(5)))[len(header()) : -1]
    call = walker.walk_send(header() + first + send(message(topic=b"last"))[len(header()) :])
    assert ([m.topic for m in call.messages], call.timeout_ms) == (["last"], 0)


def test_of_a_pull_request_that_comes_twice_nothing_of_the_first_remains(walker):
    first = pull(field(LIST, 3, list_of(STRING, text(b"a"))), field(I32, 4, i32(5)), group=b"first")[len(header()) : -1]
    call = walker.walk_pull(header(b"pull") + first + pull()[len(header()) :])
    assert (call.group, call.topics, call.max_messages, call.flags) == ("billing", None, 32, 0)


def test_an_early_bad_occurrence_is_not_healed_by_a_later_good_one(walker):
    twice = field(STRING, 6, text(b"")) + field(STRING, 6, text(b"b"))
    assert walker.walk_send(send(message(twice))).messages[0].fault
