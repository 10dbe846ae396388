"""Catalogue rows TH6, TH7 and TH9 for pulls, as far as the bytes alone decide."""

import pytest

from common.wire import WireError
from common.wire.calls import HAS_ACKS, HAS_INVISIBLE, HAS_POSITIONS, HAS_TOPICS, HAS_TOPICS_AFTER
from common.wire.faults import AckFault, CallFault, WireFault
from tests.unit.common.wire.frames import (
    I32,
    I64,
    LIST,
    STRING,
    STRUCT,
    field,
    i32,
    i64,
    list_of,
    pull,
    struct_of,
    text,
)


def names(*topics: bytes) -> bytes:
    return field(LIST, 3, list_of(STRING, *[text(topic) for topic in topics]))


def ack(*fields: bytes, receipt: bytes | None = b"r" * 52) -> bytes:
    return struct_of(*([field(STRING, 1, text(receipt))] if receipt is not None else []), *fields)


def acks(*elements: bytes) -> bytes:
    return field(LIST, 7, list_of(STRUCT, *elements))


def position(*fields: bytes, topic: bytes = b"pay") -> bytes:
    return struct_of(field(STRING, 1, text(topic)), field(I32, 2, i32(0)), *fields)


def test_a_pull_gives_its_options_with_the_contracts_defaults(walker):
    call = walker.walk_pull(pull())
    assert (call.group, call.topics, call.acks, call.flags, call.fault) == ("billing", None, [], 0, 0)
    assert (call.max_messages, call.max_bytes, call.wait_ms, call.invisible_ms) == (32, 1024 * 1024, 0, -1)


def test_a_pull_gives_its_options_as_set(walker):
    options = [field(I32, field_id, i32(value)) for field_id, value in ((4, 0), (5, 1), (6, 2**31 - 1), (9, 60_000))]
    call = walker.walk_pull(pull(*options))
    assert (call.max_messages, call.max_bytes, call.wait_ms, call.invisible_ms) == (0, 1, 2**31 - 1, 60_000)
    assert (call.fault, call.flags) == (0, HAS_INVISIBLE)


def test_a_pull_that_asks_for_topics_is_marked_and_their_name_is_a_text(walker):
    call = walker.walk_pull(pull(field(STRING, 10, text(b""))))
    assert (call.flags, call.fault, call.max_messages) == (HAS_TOPICS_AFTER, 0, 32)
    with pytest.raises(WireError):
        walker.walk_pull(pull(field(I32, 10, i32(1))))


@pytest.mark.parametrize(
    ("field_id", "fault"),
    [(4, CallFault.MAX_MESSAGES), (5, CallFault.MAX_BYTES), (6, CallFault.WAIT), (9, CallFault.INVISIBLE)],
)
@pytest.mark.parametrize("value", [-1, -(2**31)])
def test_a_negative_option_flags_the_call(walker, field_id, fault, value):
    assert walker.walk_pull(pull(field(I32, field_id, i32(value)))).fault == fault


def test_an_invisible_time_of_zero_means_unset(walker):
    assert walker.walk_pull(pull(field(I32, 9, i32(0)))).invisible_ms == -1


@pytest.mark.parametrize("name", [b"", b"..", b"a/b", b"\xff", b"a" * 250, b"%RETRY%g"])
def test_a_group_or_topic_outside_the_rule_flags_the_call(walker, name):
    assert walker.walk_pull(pull(group=name)).fault == CallFault.GROUP_NAME
    assert walker.walk_pull(pull(names(b"good", name))).fault == CallFault.TOPIC_NAME
    bad_position = field(LIST, 8, list_of(STRUCT, position(topic=name)))
    assert walker.walk_pull(pull(bad_position)).fault == CallFault.TOPIC_NAME


def test_topics_are_given_in_order_and_an_empty_list_reads_as_unset(walker):
    call = walker.walk_pull(pull(names(b"b", b"a", b"b")))
    assert (call.topics, call.flags) == (["b", "a", "b"], HAS_TOPICS)
    assert walker.walk_pull(pull(names())).topics is None


@pytest.mark.parametrize(("count", "taken"), [(256, True), (257, False)])
def test_a_pull_names_at_most_256_topics(walker, count, taken):
    frame = pull(names(*[b"t"] * count))
    if taken:
        assert len(walker.walk_pull(frame).topics) == count
        return
    with pytest.raises(WireError) as caught:
        walker.walk_pull(frame)
    assert (caught.value.rule, caught.value.field) == (WireFault.LIST_TOO_LONG, "PullRequest.topics")
    assert str(caught.value).startswith("PullRequest.topics: at most 256 per call (byte ")


def test_acks_are_given_in_order_with_what_each_sets(walker):
    retry = ack(field(I32, 2, i32(1)), field(I32, 3, i32(0)), field(STRING, 4, text("später".encode())))
    call = walker.walk_pull(pull(acks(ack(), retry, ack(receipt=b""))))
    assert call.flags == HAS_ACKS
    assert [(a.fault, a.verdict, a.delay_ms, a.reason) for a in call.acks] == [
        (0, 0, -1, None),
        (0, 1, 0, "später"),
        (0, 0, -1, None),
    ]
    assert [a.receipt for a in call.acks] == [b"r" * 52, b"r" * 52, b""]


@pytest.mark.parametrize(
    ("element", "fault"),
    [
        (ack(receipt=None), AckFault.RECEIPT_MISSING),
        (ack(field(I32, 2, i32(-1))), AckFault.VERDICT),
        (ack(field(I32, 2, i32(5))), AckFault.VERDICT),
        (ack(field(I32, 3, i32(-1))), AckFault.DELAY),
        (ack(field(STRING, 4, text(b"\xff"))), AckFault.REASON_TEXT),
    ],
)
def test_a_bad_ack_is_faulted_alone(walker, element, fault):
    call = walker.walk_pull(pull(acks(ack(), element, ack())))
    assert (call.fault, [a.fault for a in call.acks]) == (0, [0, fault, 0])


def test_more_acks_than_the_caller_has_room_for_are_refused(walker):
    frame = pull(acks(*[ack()] * 3))
    assert len(walker.walk_pull(frame, acks_max=3).acks) == 3
    with pytest.raises(WireError) as caught:
        walker.walk_pull(frame, acks_max=2)
    assert (caught.value.rule, caught.value.field) == (WireFault.LIST_TOO_LONG, "PullRequest.acks")


def test_positions_are_counted_and_left_to_the_decoder(walker):
    reader = position(field(I64, 3, i64(-1)), field(I64, 4, i64(2**63 - 1)), field(I64, 5, i64(-2)))
    call = walker.walk_pull(pull(field(LIST, 8, list_of(STRUCT, reader, position()))))
    assert (call.fault, call.flags, call.position_count) == (0, HAS_POSITIONS, 2)


def test_more_than_1000_positions_are_refused(walker):
    assert walker.walk_pull(pull(field(LIST, 8, list_of(STRUCT, *[position()] * 1000)))).position_count == 1000
    with pytest.raises(WireError):
        walker.walk_pull(pull(field(LIST, 8, list_of(STRUCT, *[position()] * 1001))))
