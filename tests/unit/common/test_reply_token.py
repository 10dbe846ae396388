"""Reply tokens: what they say, and that nobody else can make one."""

from hypothesis import given
from hypothesis import strategies as st

from common.reply_token import (
    TOKEN_SIZE,
    ReplyToken,
    ReplyTokens,
    bind_token,
    instance_of,
    read_token,
    reply_key,
    times_of,
)

KEY = b"k" * 32
TOKENS = st.builds(
    ReplyToken, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**24 - 1),
)  # fmt: skip


@given(TOKENS)
def test_a_token_says_what_it_was_made_of(token):
    data = ReplyTokens(KEY).make(token)
    assert len(data) == TOKEN_SIZE
    assert ReplyTokens(KEY).check(data) == read_token(data) == token


@given(TOKENS, st.integers(0, TOKEN_SIZE - 1), st.integers(1, 255))
def test_a_token_with_any_byte_altered_is_refused(token, at, change):
    data = bytearray(ReplyTokens(KEY).make(token))
    data[at] ^= change
    assert ReplyTokens(KEY).check(bytes(data)) is None


@given(st.binary(max_size=100))
def test_bytes_that_nobody_made_are_refused(data):
    assert ReplyTokens(KEY).check(data) is None


def test_another_clusters_token_is_refused():
    data = ReplyTokens(b"other").make(ReplyToken(1, 2, 3))
    assert ReplyTokens(KEY).check(data) is None


def test_a_token_of_another_version_is_not_read():
    assert read_token(b"\x02" + bytes(TOKEN_SIZE - 1)) is None


def test_single_fields_are_read_where_the_token_lies():
    token = ReplyTokens(b"k").make(ReplyToken(3, 1 << 63, -5, 300_000))
    assert (instance_of(b"xyz" + token, 3), times_of(b"xyz" + token, 3)) == (1 << 63, (-5, 300_000))
    other = b"\x02" + token[1:]
    assert (instance_of(other), times_of(other)) == (None, None)


@given(TOKENS, st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_a_bound_token_is_that_of_one_application_and_one_cluster(token, application, other):
    stored, key = ReplyTokens(KEY).make(token), reply_key(KEY, application)
    bound = bind_token(stored, key)
    assert len(bound) == TOKEN_SIZE and ReplyTokens(KEY).check(bound) is None
    assert ReplyTokens(KEY).unbind(bound, key) == stored
    assert ReplyTokens(KEY).unbind(bound, reply_key(b"other", application)) is None
    assert (ReplyTokens(KEY).unbind(bound, reply_key(KEY, other)) == stored) == (application == other)
