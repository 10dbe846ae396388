"""Acks of a pull become as few ranges as they can, and every ack gets its own answer."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.wire import WireError
from consumer_proxy.pull import native
from consumer_proxy.pull import read_call as call_pure
from consumer_proxy.pull.reply_format import EXTEND_MS_MAX, LOCAL, REASON_BYTES_MAX, RUN
from engine.link.acknowledgement import AckRanges
from tests.unit.consumer_proxy.pieces import CREDENTIAL, ack, pull_frame, receipt, token

DONE, RETRY, REJECT, EXTEND, RELEASE = range(5)
INVALID, STALE = LOCAL | 100, LOCAL | 106


def plan(twin, *acks):
    """(ranges as tuples, runs as tuples)"""
    call = twin.read_call(pull_frame(acks))
    assert call.acks == len(acks)
    return unpack(call.ranges), list(RUN.iter_unpack(call.runs))


def unpack(packed):
    return list(AckRanges(packed))


def test_neighbours_of_one_lease_share_a_range(twin):
    ranges, runs = plan(twin, *[ack(receipt(i)) for i in range(5, 95)])
    assert ranges == [(token(), 5, 90, DONE, -1, b"")]
    assert runs == [(90, 0)]


def test_thousands_of_acks_over_many_leases_make_a_range_a_lease(twin):
    acks = [ack(receipt(i, lease=lease), DONE) for lease in range(50) for i in range(100)]
    ranges, runs = plan(twin, *acks)
    assert [(r[1], r[2]) for r in ranges] == [(0, 100)] * 50
    assert runs == [(100, i) for i in range(50)]


@pytest.mark.parametrize(
    "other",
    [
        ack(receipt(7)),
        ack(receipt(5)),
        ack(receipt(6, lease=8)),
        ack(receipt(6), RETRY),
        ack(receipt(6), REJECT, reason=b"bad"),
        ack(receipt(6), EXTEND, 1000),
    ],
)
def test_a_gap_another_lease_or_verdict_starts_a_new_range(twin, other):
    ranges, runs = plan(twin, ack(receipt(5)), other)
    assert len(ranges) == 2
    assert runs == [(1, 0), (1, 1)]


def test_delay_and_reason_must_be_equal_to_share_a_range(twin):
    acks = [
        ack(receipt(0), RETRY, 100, b"a"),
        ack(receipt(1), RETRY, 100, b"a"),
        ack(receipt(2), RETRY, 200, b"a"),
        ack(receipt(3), RETRY, 200, b"b"),
        ack(receipt(4), RETRY, None, b"b"),
    ]
    ranges, runs = plan(twin, *acks)
    assert [r[1:] for r in ranges] == [
        (0, 2, RETRY, 100, b"a"),
        (2, 1, RETRY, 200, b"a"),
        (3, 1, RETRY, 200, b"b"),
        (4, 1, RETRY, -1, b"b"),
    ]
    assert runs == [(2, 0), (1, 1), (1, 2), (1, 3)]


def test_delay_and_reason_mean_nothing_to_release(twin):
    ranges, _ = plan(twin, ack(receipt(0), RELEASE), ack(receipt(1), RELEASE, 70, b"x"))
    assert [each[1:] for each in ranges] == [(0, 2, RELEASE, -1, b"")]


def test_delay_and_reason_mean_nothing_to_done(twin):
    ranges, _ = plan(twin, ack(receipt(0)), ack(receipt(1), DONE, 70, b"x"), ack(receipt(2), DONE, 0))
    assert ranges == [(token(), 0, 3, DONE, -1, b"")]


BAD_RECEIPTS = {
    "empty": b"",
    "short": receipt(1)[:-1],
    "long": receipt(1) + b"x",
    "other version": b"\2" + receipt(1)[1:],
    "flagged": b"\1\1" + receipt(1)[2:],
    "beyond its lease": receipt(100, count=100),
    "far beyond its lease": receipt(2**32 - 1),
}


@pytest.mark.parametrize("kind", BAD_RECEIPTS)
def test_a_receipt_that_cannot_be_ours_is_stale_without_asking_the_engine(twin, kind):
    ranges, runs = plan(twin, ack(receipt(0)), ack(BAD_RECEIPTS[kind]), ack(receipt(1)))
    assert runs == [(1, 0), (1, STALE), (1, 0)]
    assert ranges == [(token(), 0, 2, DONE, -1, b"")]


@pytest.mark.parametrize(
    "bad",
    [
        ack(receipt(0), 5),
        ack(receipt(0), -1),
        ack(receipt(0), 2**31 - 1),
        ack(receipt(0), RETRY, -1),
        ack(receipt(0), RETRY, -(2**31)),
        ack(receipt(0), EXTEND, EXTEND_MS_MAX + 1),
    ],
)
def test_a_verdict_or_delay_outside_the_contract_is_invalid_for_that_ack_alone(twin, bad):
    ranges, runs = plan(twin, ack(receipt(0)), bad)
    assert runs == [(1, 0), (1, INVALID)]
    assert len(ranges) == 1


def test_the_longest_extension_is_allowed(twin):
    assert plan(twin, ack(receipt(0), EXTEND, EXTEND_MS_MAX))[0][0][4] == EXTEND_MS_MAX


def test_a_long_reason_is_cut_at_a_character(twin):
    ranges, _ = plan(twin, ack(receipt(0), REJECT, reason="€".encode() * 1000))
    assert ranges[0][5] == "€".encode() * (REASON_BYTES_MAX // 3)


def test_unknown_fields_of_an_ack_are_passed_over(twin):
    extra = struct.pack(">BHi", 8, 77, 1) + struct.pack(">BHBI", 15, 78, 11, 1) + struct.pack(">I2s", 2, b"xy")
    ranges, runs = plan(twin, extra + ack(receipt(0)), ack(receipt(1))[:-1] + extra + b"\0")
    assert ranges == [(token(), 0, 2, DONE, -1, b"")]
    assert runs == [(2, 0)]


def test_no_acks_make_no_ranges(twin):
    assert plan(twin) == ([], [])


@pytest.mark.parametrize("cut", range(1, 62))
def test_a_cut_call_is_no_call(twin, cut):
    with pytest.raises(WireError):
        twin.read_call(pull_frame([ack(receipt(0))])[:-cut])


def test_a_call_shows_what_was_asked_and_the_defaults_of_what_was_not(twin):
    call = twin.read_call(pull_frame())
    assert (call.seqid, call.group, call.credential, call.fault) == (9, b"billing", CREDENTIAL, 0)
    assert (call.topics, call.positions, call.acks, call.runs) == (b"", 0, 0, b"")
    assert (call.max_messages, call.max_bytes, call.wait_ms, call.invisible_ms) == (32, 1 << 20, 0, -1)


def test_named_topics_and_limits_are_read(twin):
    topics = struct.pack(">BHBI", 15, 3, 11, 2) + b"".join(struct.pack(">I1s", 1, name) for name in (b"a", b"b"))
    numbers = b"".join(struct.pack(">BHi", 8, field, value) for field, value in ((4, 7), (5, 8), (6, 9), (9, 1000)))
    call = twin.read_call(pull_frame(rest=topics + numbers))
    assert call.topic_names() == ["a", "b"]
    assert (call.max_messages, call.max_bytes, call.wait_ms, call.invisible_ms) == (7, 8, 9, 1000)


receipts = st.one_of(
    st.builds(receipt, st.integers(0, 5), lease=st.integers(0, 2), count=st.just(4)), st.binary(max_size=60)
)
delays = st.one_of(st.none(), st.sampled_from([0, 1, -1, -5, EXTEND_MS_MAX, EXTEND_MS_MAX + 1]))
acks_of = st.builds(
    ack,
    receipts,
    st.one_of(st.none(), st.integers(-1, 4)),
    delays,
    st.one_of(st.none(), st.sampled_from([b"", b"no", "é".encode() * 700, b"\x80" * 1100])),
)


flips_of = st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=3)


@given(acks=st.lists(acks_of, max_size=12), flips=flips_of)
def test_twins_read_the_same_call(acks, flips):
    frame = bytearray(pull_frame(acks))
    for at, value in flips:
        if at < len(frame):
            frame[at] = value
    outcomes = []
    for read in (native.read_call, call_pure.read_call):
        try:
            outcomes.append(read(bytes(frame)))
        except WireError as error:
            outcomes.append((error.rule, error.at, error.seqid))
    assert outcomes[0] == outcomes[1]
