"""PULL's bytes: the two halves agree, and no bytes at all do anything but decode or be refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.client import codec as client
from engine.delivery.pull import Pull
from engine.link.layout import U32
from engine.ops.errors import RequestError
from engine.server import pull_parts as pull_parts_pure
from engine.server.codec import decode_pull, encode_pull_answer

names = st.from_regex(r"[a-z][A-Za-z0-9._-]{0,30}", fullmatch=True)
ranges = st.builds(
    client.AckRange, st.binary(min_size=48, max_size=48), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1),
    st.integers(0, 255), st.integers(-(2**31), 2**31 - 1), st.binary(max_size=20),
)  # fmt: skip


@given(
    names,
    st.lists(st.tuples(names, st.integers(0, 2**32 - 1)), max_size=5),
    st.integers(-(2**31), 2**31 - 1),
    st.lists(ranges, max_size=4),
)
def test_a_pull_arrives_as_it_was_encoded(group, topics, number, acks):
    payload = client.encode_pull(
        group, topics, max_messages=number, max_bytes=number, wait_ms=number, invisible_ms=number, start=1, acks=acks
    )
    request = decode_pull(payload)
    assert (request.group, list(request.topics), request.start) == (group, topics, 1)
    assert {request.max_messages, request.max_bytes, request.wait_ms, request.invisible_ms} == {number}
    assert [tuple(ack) for ack in request.acks] == [tuple(ack) for ack in acks]


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(payload):
    try:
        decode_pull(payload)
    except RequestError as error:
        assert str(error)


@given(st.data())
def test_a_pull_with_a_byte_altered_or_cut_off_is_decoded_or_refused(data):
    payload = bytearray(
        client.encode_pull("group", [("orders", 8), ("payments", 4)], acks=[client.AckRange(bytes(48), 0, 1)])
    )
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_pull(bytes(payload[: data.draw(st.integers(0, len(payload)))]))
    except RequestError as error:
        assert str(error)


def test_a_count_that_the_bytes_do_not_back_is_refused_before_anything_is_made():
    payload = client.encode_pull("g", [("orders", 1)])
    with pytest.raises(RequestError, match="more acknowledgements than bytes"):
        decode_pull(payload[:-4] + U32.pack(0xFFFFFFFF))


def test_an_answer_arrives_as_it_was_encoded():
    pull = Pull(lambda done: None, None)
    pull.ack_codes = [0, 106]
    assert client.decode_pull_answer(b"".join(encode_pull_answer(pull))) == ([0, 106], [])


def test_neighbouring_receipts_of_one_lease_become_one_range():
    piece = client.Piece(b"t" * 48, 100, 3, 0, 4, 1, 0, b"")
    other = piece._replace(token=b"o" * 48)
    receipts = [
        client.receipt(piece, 0),
        client.receipt(piece, 1),
        client.receipt(other, 0),
        b"nonsense",
        client.receipt(piece, 3),
    ]
    found = [(each.token[:1], each.first, each.count) for each in client.group_receipts(receipts)]
    assert found == [(b"t", 3, 2), (b"o", 3, 1), (b"t", 6, 1)]


@given(st.lists(ranges, max_size=4), st.integers(0, 300), st.integers(-1, 2), st.integers(0, 5))
def test_both_forms_read_the_same_acknowledgements_and_topics(acks, cut, spare, count):
    native = pytest.importorskip("engine.server._pull_parts")
    payload = client.encode_pull("g", [("orders", 8), ("payments", 4)], acks=acks)
    at = len(client.encode_pull("g", [("orders", 8), ("payments", 4)]))
    for data in (payload, payload[:-cut], payload[:cut]):
        expected = pull_parts_pure.read_acks(data, at, len(acks) + spare)
        found = native.read_acks(data, at, len(acks) + spare)
        assert (found, type(found)) == (expected, type(expected))
        assert native.topics_end(data, 5, count) == pull_parts_pure.topics_end(data, 5, count)
