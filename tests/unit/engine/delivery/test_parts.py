"""The small parts: tokens, progress values, interval sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.delivery import progress
from engine.delivery.delivery import receipt_key
from engine.delivery.intervals import IntervalSet
from engine.delivery.receipt import Receipts, topic_hash
from engine.log.memory import MemoryLog


def test_a_token_says_what_was_put_in_and_only_to_its_group_and_key():
    token = Receipts(b"k" * 32, "g").make(7, 32, topic_hash("orders"), 1 << 40, 99)
    assert len(token) == 48
    assert Receipts(b"k" * 32, "g").check(token) == (7, 32, topic_hash("orders"), 1 << 40, 99)
    assert Receipts(b"k" * 32, "h").check(token) is None
    assert Receipts(b"j" * 32, "g").check(token) is None


@given(at=st.integers(0, 47), bit=st.integers(0, 7))
def test_a_token_with_any_bit_altered_is_refused(at, bit):
    token = bytearray(Receipts(b"k" * 32, "g").make(7, 32, 1, 2, 3))
    token[at] ^= 1 << bit
    assert Receipts(b"k" * 32, "g").check(bytes(token)) is None


def test_the_receipt_key_is_made_once():
    log = MemoryLog()
    made = receipt_key(log, lambda size: b"a" * size)
    assert receipt_key(log, lambda size: b"b" * size) == made


@given(
    st.integers(0, 1 << 60),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 1000), st.integers(0, 3))),
    st.integers(0, 99),
)
def test_a_progress_value_comes_back_as_it_was_with_neighbours_joined(start, parts, tail):
    ranges, at = [], start
    for gap, count, attempt in parts:
        ranges.append((at + gap, at + gap + count, attempt))
        at += gap + count
    made = progress.Progress(5, at + tail, ranges)
    back = progress.decode(progress.encode(made))
    expand = lambda ranges: [(offset, attempt) for first, end, attempt in ranges for offset in range(first, end)]  # noqa: E731
    assert (back.floor, back.next_offset, expand(back.ranges)) == (5, at + tail, expand(ranges))


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x02\x00\x00\x00\x00", b"\x01\x00\x00\x05\x00", b"\x80"])
def test_a_progress_value_of_other_bytes_is_refused(value):
    with pytest.raises(ValueError):
        progress.decode(value)


def test_a_progress_key_names_its_place_and_other_keys_none():
    assert progress.split_key(progress.key("gé", 7, 3)) == ("gé", 7, 3)
    assert progress.split_key(progress.RECEIPT_KEY) is None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10))), st.integers(0, 70))
def test_an_interval_set_is_a_set(ranges, offset):
    kept, model = IntervalSet(), set()
    for first, count in ranges:
        kept.add(first, first + count)
        model.update(range(first, first + count))
    assert {at for first, end in kept for at in range(first, end)} == model
    assert all(end < after for (_, end), (after, _) in zip(list(kept), list(kept)[1:], strict=False))
    expected = offset
    while expected in model:
        expected += 1
    assert kept.skip(offset) == expected
    assert all(first > expected for first, _ in kept)
