"""PULL's bytes: what production sends is what production decodes, and no bytes at all do anything but decode or be refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.delivery.pull import Pull
from engine.delivery.reply_window import ReplyWindow
from engine.link import pull_parts
from engine.link.acknowledgement import ACK_SIZE, RELEASE, AckRange, AckRanges
from engine.link.errors import PayloadError
from engine.link.integers import U32
from engine.link.pieces import PIECE_SIZE, AnswerPiece, JoinedPieces, encode_pieces
from engine.link.pull import (
    NOTHING,
    PullAnswer,
    PullQuestion,
    PullScope,
    acknowledging,
    decode_answer,
    decode_request,
    encode_answer,
    encode_pull,
)  # fmt: skip
from engine.link.receipt import NO_TOKEN, TOKEN, queue_of_token

names = st.from_regex(r"[a-z][A-Za-z0-9._-]{0,30}", fullmatch=True)
tokens = st.binary(min_size=48, max_size=48)
u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
ranges = st.builds(AckRange, tokens, u32, u32, st.integers(0, 255), i32, st.binary(max_size=20))
pieces = st.builds(
    AnswerPiece, tokens, u64, u32, u32, u32, u32, st.integers(-(2**63), 2**63 - 1), st.binary(max_size=50)
)


@given(names, st.dictionaries(names, u32, max_size=5), i32, st.integers(0, 255), st.lists(ranges, max_size=4))
def test_a_question_arrives_as_it_was_asked(group, queues, number, start, acks):
    scope = PullScope(group.encode(), queues)
    question = PullQuestion(scope, number, number, number, number, start, AckRanges.of(acks))
    request = decode_request(question.encode())
    assert (request.group, list(request.topics), request.start) == (group, list(queues.items()), start)
    assert {request.max_messages, request.max_bytes, request.wait_ms, request.invisible_ms} == {number}
    assert request.acks == acks == list(question.acks)
    assert scope.queues() == [(name.encode(), count) for name, count in queues.items()]
    assert AckRanges.joined(question.acks.split()) == question.acks


@given(st.lists(st.integers(0, 65535), max_size=5), st.lists(pieces, max_size=4))
def test_an_answer_arrives_as_it_was_made(codes, made):
    answer = PullAnswer.of(codes, made)
    assert PullAnswer(answer.payload).codes() == codes
    assert list(PullAnswer(answer.payload).pieces()) == made
    assert decode_answer(answer.payload) == (codes, made)


@given(st.lists(pieces, max_size=3), st.lists(pieces, max_size=3))
def test_joined_pieces_are_those_of_both_answers(first, second):
    joined = JoinedPieces()
    for each in (first, second):
        answer = PullAnswer.of((7,), each)
        assert joined.add(answer.payload, answer.pieces_at) == sum(piece.count for piece in each)
    assert (joined.count, joined.records) == (len(first + second), sum(piece.count for piece in first + second))
    assert list(NOTHING.with_pieces(joined.encoded(), 0).pieces()) == first + second


def test_the_server_answers_with_parts_of_the_same_bytes():
    pull = Pull(lambda done: None, ReplyWindow())
    pull.ack_codes = [0, 106]
    assert b"".join(encode_answer(pull.ack_codes, pull.piece_count, pull.pieces)) == PullAnswer.of([0, 106], []).payload


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(payload):
    for decode, error in ((decode_request, PayloadError), (decode_answer, PayloadError)):
        try:
            decode(payload)
        except error as refusal:
            assert str(refusal)


@given(st.data())
def test_a_payload_with_a_byte_altered_or_cut_off_is_decoded_or_refused(data):
    piece = AnswerPiece(bytes(48), 1, 2, 3, 4, 5, 6, b"records")
    request = encode_pull("group", [("orders", 8), ("payments", 4)], acks=[AckRange(bytes(48), 0, 1)])
    answer = PullAnswer.of([0], [piece, piece]).payload
    for decode, sound in ((decode_request, request), (decode_answer, answer)):
        payload = bytearray(sound)
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
        try:
            decode(bytes(payload[: data.draw(st.integers(0, len(payload)))]))
        except PayloadError as error:
            assert str(error)


def test_a_lying_count_of_acknowledgements_is_refused_before_anything_is_made():
    payload = encode_pull("g", [("orders", 1)])
    with pytest.raises(PayloadError, match="more acknowledgements than bytes"):
        decode_request(payload[:-4] + U32.pack(0xFFFFFFFF))
    with pytest.raises(PayloadError, match="more counted"):
        AckRanges(U32.pack(2) + bytes(ACK_SIZE)).split()
    with pytest.raises(PayloadError, match="do not end"):
        AckRanges(U32.pack(0) + b"x").split()


@pytest.mark.parametrize("count", [2, 0xFFFFFFFF])
def test_a_lying_count_of_codes_or_pieces_is_refused(count):
    sound = PullAnswer.of([0], [AnswerPiece(bytes(48), 1, 2, 3, 4, 5, 6, b"records")]).payload
    for lying in (U32.pack(count) + sound[4:], sound[:6] + U32.pack(count) + sound[10:]):
        with pytest.raises(PayloadError):
            decode_answer(lying)
    with pytest.raises(PayloadError, match="runs past"):
        JoinedPieces().add(sound[:6] + U32.pack(count) + sound[10:], 6)
    for cut in range(len(sound)):
        with pytest.raises(PayloadError):
            decode_answer(sound[:cut])


def test_leases_beyond_what_a_reply_carries_are_released_neighbours_of_one_lease_together():
    token = TOKEN.pack(1, 3, 9, 5, 1000, 7) + bytes(16)
    answer = PullAnswer.of((), [
        AnswerPiece(token, 1000, 2, 3, 4, 1, 0, b""),
        AnswerPiece(NO_TOKEN, 5, 0, 3, 2, 0, 0, b""),
        AnswerPiece(token, 1006, 8, 3, 1, 1, 0, b""),
        AnswerPiece(token, 1007, 9, 3, 4, 1, 0, b"x"),
    ])  # fmt: skip
    acks, count = answer.give_back(3)
    assert (list(acks), count) == ([AckRange(token, 5, 1, RELEASE), AckRange(token, 8, 5, RELEASE)], 6)
    request = decode_request(acknowledging(PullScope(b"g", {}), acks).encode())
    assert (request.max_messages, request.acks) == (0, list(acks))
    assert queue_of_token(token) == (5, 3)


@given(st.lists(ranges, max_size=4), st.integers(0, 300), st.integers(-1, 2), st.integers(0, 255))
def test_both_forms_split_a_request_alike_and_refuse_the_same_bytes(acks, cut, spare, altered):
    native = pytest.importorskip("engine.link._pull_parts")
    payload = encode_pull("g", [("orders", 8), ("payments", 4)], acks=acks)
    count_at = len(encode_pull("g", [("orders", 8), ("payments", 4)])) - 4
    lying = payload[:count_at] + U32.pack(max(0, len(acks) + spare)) + payload[count_at + 4 :]
    at = cut % len(payload)
    for data in (payload, payload[:-cut], payload[:cut], lying, payload[:at] + bytes([altered]) + payload[at + 1 :]):
        try:
            expected = pull_parts.split_request(data)
        except PayloadError as refusal:
            with pytest.raises(PayloadError, match=re.escape(str(refusal))):
                native.split_request(data)
        else:
            found = native.split_request(data)
            assert (found, [type(each) for each in found[-1]]) == (expected, [type(each) for each in expected[-1]])


@given(st.lists(pieces, max_size=4), st.booleans(), st.integers(0, 2**33), st.integers(0, 400), st.integers(-1, 9))
def test_both_forms_find_the_same_leases_in_an_answer(made, is_one_lease, skip, cut, at):
    native = pytest.importorskip("engine.link._pull_parts")
    if is_one_lease:
        made = [each._replace(token=b"t" * 48, first_delta=5, count=7) for each in made]
    payload = PullAnswer.of((), made).payload
    for data, begin in ((payload, 4), (payload[:cut], 4), (payload, at), (payload + b"x", 4)):
        try:
            expected = pull_parts.leases_of(data, begin, skip, RELEASE)
        except PayloadError:
            with pytest.raises(PayloadError):
                native.leases_of(data, begin, skip, RELEASE)
        else:
            assert native.leases_of(data, begin, skip, RELEASE) == expected


@given(st.lists(pieces, max_size=4), st.lists(st.integers(0, 3), max_size=4), st.booleans())
def test_both_forms_find_the_leases_of_an_answer_in_parts(made, joined, is_one_lease):
    if is_one_lease:
        made = [each._replace(token=b"t" * 48, first_delta=5, count=7) for each in made]
    parts = [part for each in made for part in (encode_pieces([each])[4:][:PIECE_SIZE], each.records)]
    for at in joined:
        parts[at : at + 2] = [b"".join(parts[at : at + 2])]
    expected, _ = pull_parts.leases_of(PullAnswer.of((), made).payload, 4, 0, RELEASE)
    assert pull_parts.leases_of_parts(parts, RELEASE) == expected
    native = pytest.importorskip("engine.link._pull_parts")
    assert native.leases_of_parts(parts, RELEASE) == expected
