"""The small parts: tokens, progress values, interval sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.delivery import progress
from engine.delivery.intervals import IntervalSet
from engine.delivery.progress import StoredRange
from engine.delivery.receipt import Receipts, receipt_key, topic_hash
from engine.log.memory import MemoryLog

TIME_MS = 1_800_000_000_000


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
    st.lists(
        st.tuples(
            st.integers(0, 9), st.integers(1, 1000), st.integers(0, 3), st.integers(0, 2), *[st.integers(0, 5_000)] * 2
        )
    ),
    st.integers(0, 99),
)
def test_a_progress_value_comes_back_as_it_was_with_neighbours_joined(start, parts, tail):
    ranges, at = [], start
    for gap, count, attempt, due, age, more in parts:
        oldest, newest = (TIME_MS - age - more, TIME_MS - age) if due else (0, 0)
        ranges.append(StoredRange(at + gap, at + gap + count, attempt, due, oldest, newest))
        at += gap + count
    made = progress.Progress(5, at + tail, ranges, TIME_MS, 9)
    back = progress.decode(progress.encode(made))
    assert (back.floor, back.next_offset) == (5, at + tail)
    assert back.time_ms == (TIME_MS if any(each.due for each in ranges) else 0)
    expand = lambda ranges: {  # noqa: E731
        offset: each for each in ranges for offset in range(each.first, each.end)
    }
    expected, found = expand(ranges), expand(back.ranges)
    assert expected.keys() == found.keys()
    for offset, each in expected.items():
        kept = found[offset]
        assert (kept.attempt, kept.due) == (each.attempt, each.due)
        assert kept.oldest_ms <= each.oldest_ms <= each.newest_ms <= kept.newest_ms
    assert progress.decode(progress.encode(back)) == back


def test_progress_without_a_running_lease_costs_what_it_did_before_leases_were_stored():
    made = progress.Progress(0, 90, [StoredRange(5, 9, 1), StoredRange(20, 30, 2)], TIME_MS)
    assert progress.encode(made) == bytes([1, 0, 5, 2, 0, 4, 1, 11, 10, 2, 60])


def test_single_leases_that_end_together_are_stored_as_one_range():
    ranges = [StoredRange(at, at + 1, 1, 9, TIME_MS - at, TIME_MS - at) for at in range(100)]
    assert len(progress.encode(progress.Progress(0, 100, ranges, TIME_MS))) < 32


@pytest.mark.parametrize(
    "value",
    [
        b"", b"\x01", b"\x03\x00\x00\x00\x00", b"\x01\x00\x00\x05\x00", b"\x80", b"\x01\x00\x00\x00\x00\x00",
        b"\x02\x00\x09\x00\x00\x01\x00\x01\x01\x05\x01\x01", b"\x01\x00\x00\xff\xff\xff\xff\x0f\x00",
    ],
)  # fmt: skip
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
