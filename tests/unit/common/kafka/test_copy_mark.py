"""The mark of a copied record: where its message is in the engine, and whether the record is still as it was copied."""

from hypothesis import given
from hypothesis import strategies as st

from common.kafka.copy_mark import CopyMark, content_hash, parse_copy_mark

LOG = bytes(range(16)).hex()


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_a_mark_is_read_back_from_its_text(topic_id, queue, offset):
    mark = CopyMark(LOG, topic_id, queue, offset, content_hash(b"k", b"v"))
    assert parse_copy_mark(mark.encode()) == mark


def test_what_is_no_mark_is_not_read_as_one():
    text = CopyMark(LOG, 1, 2, 3, content_hash(b"k", b"v")).encode()
    assert [parse_copy_mark(each) for each in (None, b"", text[:-1], text + b" 1", bytes(40))] == [None] * 5


@given(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20))
def test_a_mark_matches_the_key_and_the_value_that_were_copied_alone(key, value):
    mark = CopyMark(LOG, 1, 2, 3, content_hash(key, value))
    assert mark.matches(key, value)
    assert not mark.matches((key or b"") + b"x", value) and not mark.matches(key, (value or b"") + b"x")


def test_a_byte_that_moves_from_the_key_to_the_value_and_a_null_key_are_other_records():
    pairs = ((b"ab", b"c"), (b"a", b"bc"), (None, b"abc"), (b"", b"abc"))
    assert len({content_hash(*each) for each in pairs}) == 4
