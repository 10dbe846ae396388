"""Properties: the twins agree on valid, mutated, cut and random frames, and what walks decodes with thriftpy2 to the same values."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common import contract
from common.wire import walk as walk_pure
from tests.unit.common.wire import agree
from tests.unit.common.wire.frames import CREDENTIAL, header

pytestmark = pytest.mark.skipif(agree._native is None, reason="the native walker is not built")

TEXT = st.text(max_size=70) | st.sampled_from(["", "pay", "a" * 249, "..", "a/b", "x y"])
SMALL = st.integers(-2, 5) | st.sampled_from([2**31 - 1, -(2**31)])
LONG = st.integers(-2, 5) | st.sampled_from([2**63 - 1, -(2**63), 253402300799999])


def maybe(strategy):
    return st.none() | strategy


MESSAGES = st.builds(
    contract.Message,
    topic=maybe(TEXT),
    body=maybe(st.binary(max_size=200)),
    key=maybe(TEXT),
    tag=maybe(TEXT),
    properties=maybe(st.dictionaries(TEXT, TEXT, max_size=70)),
    id=maybe(TEXT),
    deliver_at_ms=maybe(LONG),
    delay_ms=maybe(LONG),
    operation=maybe(SMALL),
    reply_to=maybe(st.binary(max_size=20)),
)
CREDENTIALS = st.builds(
    contract.Credential, app=TEXT, key_id=TEXT, issued_at_ms=LONG, signature=st.binary(min_size=32, max_size=32)
)
SENDS = st.builds(
    contract.SendRequest,
    credential=CREDENTIALS,
    messages=st.lists(MESSAGES, max_size=5),
    timeout_ms=maybe(SMALL),
    durability=maybe(SMALL),
    reply_wait_ms=maybe(SMALL),
)
ACKS = st.builds(
    contract.Ack,
    receipt=maybe(st.binary(max_size=60)),
    verdict=maybe(SMALL),
    delay_ms=maybe(SMALL),
    reason=maybe(TEXT),
)
POSITIONS = st.builds(contract.Position, topic=TEXT, queue=SMALL, offset=maybe(LONG), at_time_ms=maybe(LONG))
PULLS = st.builds(
    contract.PullRequest,
    credential=CREDENTIALS,
    group=TEXT,
    topics=maybe(st.lists(TEXT, max_size=5)),
    max_messages=maybe(SMALL),
    max_bytes=maybe(SMALL),
    wait_ms=maybe(SMALL),
    acks=maybe(st.lists(ACKS, max_size=5)),
    positions=maybe(st.lists(POSITIONS, max_size=3)),
    invisible_ms=maybe(SMALL),
)
FRAMES = st.builds(contract.encode_call, st.just("send"), SMALL, SENDS) | st.builds(
    contract.encode_call, st.just("pull"), SMALL, PULLS
)


@given(FRAMES)
@settings(max_examples=150, deadline=None)
def test_what_a_client_encodes_walks_on_both_twins_to_the_values_it_set(frame):
    assert agree.check_frame(frame)


@given(FRAMES, st.data())
@settings(max_examples=100, deadline=None)
def test_the_twins_agree_on_a_call_with_flipped_bits(frame, data):
    broken = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    agree.check_frame(bytes(broken))


@given(FRAMES, st.data())
@settings(max_examples=100, deadline=None)
def test_the_twins_agree_on_a_call_with_bytes_cut_inserted_or_replaced(frame, data):
    start = data.draw(st.integers(0, len(frame)))
    end = data.draw(st.integers(start, min(len(frame), start + 8)))
    agree.check_frame(frame[:start] + data.draw(st.binary(max_size=8)) + frame[end:])
    agree.check_frame(frame[:start])


@given(st.sampled_from([b"send", b"pull"]), st.binary(max_size=80), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_twins_agree_on_random_bytes_behind_a_header(name, tail, with_credential):
    start = b"\x0c\0\1\x0c\0\1" + CREDENTIAL if with_credential else b""
    agree.check_frame(header(name) + start + tail)
    agree.check_frame(tail)


@given(st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
@settings(max_examples=150, deadline=None)
def test_the_twins_agree_on_names_and_hashes(data):
    assert agree._native.murmur2(data) == walk_pure.murmur2(data)
    assert agree._native.valid_name(data) == walk_pure.valid_name(data)
