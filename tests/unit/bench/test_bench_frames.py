"""Request frames against the contract's own decoder and our walker; answers against its encoder."""

import random

import pytest

pytest.importorskip("bench._load")

from bench._answers import count_send_codes
from bench._requests import PullFrames, SendFrames

from bench.generator import encode_credential
from common.contract import Message, SendResponse, SendResult, decode_call, encode_exception, encode_reply
from common.credential import mint
from common.wire import walk_pull, walk_send

TOPICS = [b"a", b"orders.eu", b"x" * 249]
CREDENTIAL = mint("app", "key", "secret", 1_700_000_000_000)


def made(frames, *arguments, **options):
    frames.set_credential(encode_credential(CREDENTIAL))
    frame = frames.frame(*arguments, **options)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def test_a_send_frame_is_what_the_contract_reads_and_our_walker_accepts():
    frame = made(SendFrames(TOPICS, 100, key_count=5, durability=2, timeout_ms=700), 42, 50)
    walk_send(frame)
    name, seqid, arguments = decode_call(frame)
    request = arguments.request
    assert (name, seqid, request.durability, request.timeout_ms) == ("send", 42, 2, 700)
    fields = request.credential
    assert (fields.app, fields.key_id, fields.issued_at_ms, fields.signature) == tuple(CREDENTIAL)
    assert {message.topic.encode() for message in request.messages} == set(TOPICS)
    assert {len(message.body) for message in request.messages} == {100}
    assert {message.key for message in request.messages} <= {f"k{number:08x}" for number in range(5)}


def test_unset_options_leave_their_fields_unset():
    request = decode_call(made(SendFrames([b"a"], 0), 1, 1))[2].request
    assert (request.durability, request.timeout_ms, request.messages[0].key) == (None, None, None)
    assert request.messages == [Message(topic="a", body=b"")]


def test_topics_in_sequence_come_each_once_before_the_first_comes_again():
    frames = SendFrames(TOPICS, 8, sequential=True)
    topics = [message.topic for message in decode_call(made(frames, 1, 5))[2].request.messages]
    assert [topic.encode() for topic in topics] == [*TOPICS, *TOPICS[:2]]


def test_the_same_seed_gives_the_same_topics():
    first, again, other = (
        [message.topic for message in decode_call(made(SendFrames(TOPICS, 8, seed=seed), 1, 200))[2].request.messages]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_body_with_room_carries_its_send_time_and_the_rest_looks_random():
    frames = SendFrames([b"a"], 1000)
    body = decode_call(made(frames, 1, 1, 123_456_789))[2].request.messages[0].body
    assert (int.from_bytes(body[:8], "little"), int.from_bytes(body[8:16], "little")) == (frames.mark, 123_456_789)
    assert len(set(body[16:])) > 200


def test_a_pull_frame_carries_group_topics_limits_and_acknowledgements():
    frame = made(PullFrames(b"group", TOPICS, max_messages=1000, max_bytes=5000, wait_ms=100), 9, (b"r1", b"r2"))
    walk_pull(frame)
    name, seqid, arguments = decode_call(frame)
    request = arguments.request
    assert (name, seqid, request.group, request.max_messages) == ("pull", 9, "group", 1000)
    assert (request.max_bytes, request.wait_ms, [ack.receipt for ack in request.acks]) == (5000, 100, [b"r1", b"r2"])
    assert ([topic.encode() for topic in request.topics], request.acks[0].verdict) == (TOPICS, None)


def test_the_last_pull_asks_for_no_message_and_does_not_wait():
    request = decode_call(made(PullFrames(b"group", TOPICS, wait_ms=100), 1, (b"r",), last=True))[2].request
    assert (request.max_messages, request.wait_ms, len(request.acks)) == (0, 0, 1)


def answer(codes):
    reply = Message(topic="t", properties={"a": "b"}, body=b"xy")
    results = [SendResult(code=code, id="i" * 32, queue=1, offset=2, error="why", reply=reply) for code in codes]
    return encode_reply("send", 5, SendResponse(results=results))


def test_codes_are_counted_for_each_message_and_unknown_ones_in_the_last_place():
    assert count_send_codes(answer([0, 0, 2, 203, 200, 7777, -1]), 5) == {0: 2, 2: 1, 200: 1, 203: 1, 599: 2}


def test_an_answer_to_another_call_or_an_exception_counts_as_none():
    assert count_send_codes(answer([0]), 6) is None
    assert count_send_codes(encode_exception("send", 5, 1, "no"), 5) is None
    assert count_send_codes(encode_reply("pull", 5, None), 5) is None


def test_a_truncated_or_damaged_answer_is_refused_or_counted_but_never_read_past_its_end():
    whole = answer([0, 1, 2])
    assert all(count_send_codes(whole[:size], 5) is None for size in range(len(whole) - 1))
    draw = random.Random(3)
    for _ in range(3000):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        count_send_codes(bytes(damaged), 5)
