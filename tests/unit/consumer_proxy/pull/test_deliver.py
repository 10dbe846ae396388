"""The reply of a pull: what the engine holds, wrapped as the contract says, without touching a message."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.contract import Message
from common.placement import topic_hash
from common.reply_token import bind_token
from consumer_proxy.pull import deliver as deliver_pure
from consumer_proxy.pull import native
from consumer_proxy.pull.reply_format import (
    ACK_SENTENCES_MAX,
    DELIVERY_OVERHEAD_MAX,
    LOCAL,
    REPLY_BYTES_MAX,
    RUN,
)
from consumer_proxy.response_fields import source_row
from engine.link.acknowledgement import RELEASE
from engine.link.errors import PayloadError
from tests.unit.consumer_proxy.contract import decode_reply, encode
from tests.unit.consumer_proxy.pieces import answer, piece, pieces_at, receipt, record, token
from tests.unit.consumer_proxy.pieces import message as stored

ID = bytes(range(16))
REPLY_KEY = b"r" * 32


def reply(twin, pieces, codes=(), runs=b"", tail=b"", seqid=7, code=0, size_max=REPLY_BYTES_MAX):
    payload = answer(pieces, codes)
    return twin.build_reply(seqid, code, payload, pieces_at(codes), 4, runs, tail, size_max, REPLY_KEY)


def test_each_delivery_carries_receipt_place_and_the_stored_message_as_it_is(twin):
    records = [record(stored(body=b"a" * i), ID) for i in range(3)]
    frame, given_count, held, _ = reply(twin, [piece(records, delta=5, offset=1005, queue=3, attempt=2)])
    seqid, response = decode_reply(frame)
    assert (seqid, response.code, given_count, held) == (7, 0, 3, 3)
    for i, delivery in enumerate(response.deliveries):
        assert delivery.receipt == receipt(5 + i)
        assert (delivery.queue, delivery.offset, delivery.attempt) == (3, 1005 + i, 2)
        assert delivery.stored_at_ms == 1_700_000_000_000
        assert delivery.id == ID.hex()
        assert encode(delivery.message) == stored(body=b"a" * i)


def test_a_message_with_its_own_id_is_delivered_under_it(twin):
    frame, *_ = reply(twin, [piece([record(stored(own_id=b"order-1"))])])
    assert decode_reply(frame)[1].deliveries[0].id == "order-1"


def test_the_last_of_two_own_ids_wins_as_in_thrift(twin):
    again = struct.pack(">BHI", 11, 6, 3) + b"two"
    frame, *_ = reply(twin, [piece([record(stored(own_id=b"one", extra=again))])])
    delivery = decode_reply(frame)[1].deliveries[0]
    assert delivery.id == delivery.message.id == "two"


def test_an_own_id_behind_maps_and_unknown_fields_is_found(twin):
    extra = b"".join(
        [
            struct.pack(">BHBBI", 13, 5, 11, 11, 1) + struct.pack(">I1sI1s", 1, b"k", 1, b"v"),
            struct.pack(">BH", 12, 90) + struct.pack(">BHBIq", 15, 1, 10, 1, -1) + b"\0",
            struct.pack(">BHB", 2, 91, 1),
            struct.pack(">BHI", 11, 6, 2) + b"me",
        ]
    )
    frame, *_ = reply(twin, [piece([record(stored(extra=extra))])])
    assert decode_reply(frame)[1].deliveries[0].id == "me"


def test_a_read_by_position_has_empty_receipts(twin):
    frame, *_ = reply(twin, [piece([record(stored(), ID)], of=bytes(48), offset=9)])
    delivery = decode_reply(frame)[1].deliveries[0]
    assert (delivery.receipt, delivery.offset) == (b"", 9)


@pytest.mark.parametrize("assigned", [ID, None])
def test_a_requests_delivery_shows_its_token_and_its_deadline(twin, assigned):
    request = bytes((1, *range(1, 16))) + struct.pack("<q", 1_700_000_005_000) + b"m" * 16
    own_id = None if assigned else b"mine"
    pieces = [piece([record(stored(own_id=own_id), assigned, request)]), piece([record(stored(), ID)], offset=1001)]
    first, second = decode_reply(reply(twin, pieces)[0])[1].deliveries
    assert (first.reply_token, first.reply_by_ms) == (bind_token(request, REPLY_KEY), 1_700_000_005_000)
    assert encode(first.message) == stored(own_id=own_id)
    assert (second.reply_token, second.reply_by_ms) == (None, None)


def test_a_read_by_position_shows_no_token_so_that_it_cannot_answer(twin):
    frame, *_ = reply(twin, [piece([record(stored(), ID, b"t" * 40)], of=bytes(48))])
    delivery = decode_reply(frame)[1].deliveries[0]
    assert (delivery.reply_token, delivery.reply_by_ms) == (None, None)
    assert encode(delivery.message) == stored()


@pytest.mark.parametrize("assigned", [ID, None])
def test_a_record_too_short_for_its_token_is_damaged(twin, assigned):
    with pytest.raises(PayloadError):
        reply(twin, [piece([record(b"", assigned, b"t" * 39)])])


def test_deliveries_of_a_topic_in_the_table_tell_their_source(twin):
    table = source_row(b"orders", "engine") + source_row(b"hidden", "kafka:main")
    orders, hidden = topic_hash(b"orders"), topic_hash(b"hidden")
    pieces = [
        piece([record(stored(), ID)] * 2, of=token(topic_hash=hidden)), piece([record(stored(), ID)], of=token(topic_hash=orders)),
        piece([record(stored(), ID)], of=token(topic_hash=9)), piece([record(stored(), ID)], of=bytes(48)),
    ]  # fmt: skip
    payload = answer(pieces, ())
    given = (7, 0, payload, pieces_at(()), 4, b"", b"")
    frame, given_count, held, _ = twin.build_reply(*given, REPLY_BYTES_MAX, REPLY_KEY, table)
    found = [each.source for each in decode_reply(frame)[1].deliveries]
    assert found == ["kafka:main", "kafka:main", "engine", None, None] and given_count == held == 5
    _, given_count, held, _ = twin.build_reply(*given, len(frame) - 1, REPLY_KEY, table)
    assert (given_count, held) == (4, 5), "the source is in the size"


def test_several_pieces_keep_their_order(twin):
    pieces = [piece([record(stored(), ID)] * 2, queue=q, offset=10 * q) for q in range(4)]
    frame, given_count, *_ = reply(twin, pieces)
    places = [(d.queue, d.offset) for d in decode_reply(frame)[1].deliveries]
    assert given_count == 8
    assert places == [(q, 10 * q + i) for q in range(4) for i in range(2)]


def test_an_empty_answer_is_an_empty_reply(twin):
    frame, given_count, held, _ = reply(twin, [])
    assert decode_reply(frame)[1].deliveries == []
    assert (given_count, held) == (0, 0)


def test_ack_codes_come_back_one_per_ack_in_order(twin):
    runs = RUN.pack(3, 0) + RUN.pack(2, LOCAL | 106) + RUN.pack(1, 1)
    frame, *_ = reply(twin, [], codes=(0, 106), runs=runs)
    results = decode_reply(frame)[1].ack_results
    assert [r.code for r in results] == [0, 0, 0, 106, 106, 106]
    assert [bool(r.error) for r in results] == [False] * 3 + [True] * 3


def test_a_bad_verdict_and_the_rejection_of_a_dead_letter_get_sentences_of_their_own(twin):
    frame, *_ = reply(twin, [], codes=(100,), runs=RUN.pack(1, LOCAL | 100) + RUN.pack(1, 0))
    bad, letter = decode_reply(frame)[1].ack_results
    assert (bad.code, letter.code) == (100, 100)
    assert bad.error.startswith(f"verdict: 0 to {RELEASE};") and "a dead letter cannot be rejected" in letter.error


def test_only_the_first_bad_acks_get_a_sentence(twin):
    frame, *_ = reply(twin, [], runs=RUN.pack(ACK_SENTENCES_MAX + 5, LOCAL | 106))
    results = decode_reply(frame)[1].ack_results
    assert len(results) == ACK_SENTENCES_MAX + 5
    assert sum(r.error is not None for r in results) == ACK_SENTENCES_MAX


def test_the_tail_stands_behind_the_ack_results(twin):
    tail = struct.pack(">BHi", 8, 5, 250) + struct.pack(">BHI", 11, 6, 2) + b"no"
    frame, *_ = twin.build_reply(-1, 203, b"", -1, 0, RUN.pack(1, LOCAL | 203), tail, REPLY_BYTES_MAX)
    seqid, response = decode_reply(frame)
    assert seqid == -1
    assert (response.code, response.retry_after_ms, response.error) == (203, 250, "no")
    assert [r.code for r in response.ack_results] == [203]


def test_a_reply_never_grows_beyond_its_limit_and_tells_what_is_left(twin):
    records = [record(stored(body=b"z" * 1000), ID)] * 10
    whole = len(reply(twin, [piece(records)])[0])
    frame, given_count, held, _ = reply(twin, [piece(records)], size_max=whole - 1)
    assert len(frame) < whole
    assert (given_count, held) == (9, 10)
    assert len(decode_reply(frame)[1].deliveries) == 9


def test_a_smaller_message_behind_one_that_did_not_fit_is_not_given_either(twin):
    pieces = [piece([record(stored(body=b"z" * 1000), ID)]), piece([record(stored(), ID)], queue=4)]
    _, given_count, held, _ = reply(twin, pieces, size_max=600)
    assert (given_count, held) == (0, 2)


@pytest.mark.parametrize("own_id", [None, b"", b"i", b"i" * 64])
def test_the_overhead_of_a_delivery_stays_within_what_pulls_are_bounded_by(twin, own_id):
    body = stored(own_id=own_id)
    empty = len(reply(twin, [])[0])
    one = len(reply(twin, [piece([record(body, ID if own_id is None else None)])])[0])
    assert one - empty - len(body) <= DELIVERY_OVERHEAD_MAX


DAMAGE = {
    "no piece count": b"\0\0\0\0",
    "piece cut": answer([piece([record(stored(), ID)])])[:-1],
    "bytes behind": answer([piece([record(stored(), ID)])]) + b"x",
    "more pieces than said": answer([]) + piece([]),
    "record without flags": answer([piece([struct.pack("<I", 0)])]),
    "record with half an id": answer([piece([struct.pack("<I", 9) + b"\1" + b"i" * 8])]),
    "record longer than its piece": answer([piece([struct.pack("<I", 1 << 31) + b"\0\0"])]),
    "fewer records than bytes": answer([piece([record(stored(), ID) + record(stored(), ID)])]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_answer_is_refused(twin, damage):
    with pytest.raises(PayloadError):
        twin.build_reply(1, 0, DAMAGE[damage], 4, 4, b"", b"", REPLY_BYTES_MAX)


MALFORMED = {
    "ends before its record": stored(body=b"x") + b"\x0b\x00\x07\x00\x00\x00\x01x\x00",
    "ends before a stop that is not its own": stored(body=b"x") + b"\x00",
    "does not end": b"\x0b\x00\x01\xff\xff\xff\xff",
    "nested too deep": b"\x0c\x00\x63" * 40 + b"\0" * 41,
    "empty": b"",
}


@pytest.mark.parametrize("own_id", [ID, None])
@pytest.mark.parametrize("kind", MALFORMED)
def test_a_record_that_is_no_whole_message_is_left_out_and_the_others_are_delivered(twin, kind, own_id):
    bad, good = record(MALFORMED[kind], own_id), record(stored(body=b"good"), ID)
    frame, given_count, held, malformed = reply(twin, [piece([good, bad]), piece([bad, good, good], queue=4)])
    response = decode_reply(frame)[1]
    assert [each.message.body for each in response.deliveries] == [b"good"] * 3
    assert (given_count, held, malformed) == (5, 5, [(0, 1), (1, 0)])


def test_a_run_that_no_code_answers_is_refused(twin):
    with pytest.raises(PayloadError):
        reply(twin, [], codes=(), runs=RUN.pack(1, 1 << 20))


ids = st.one_of(st.binary(min_size=16, max_size=16), st.none())
records_of = st.builds(
    lambda body, own, assigned, request: record(stored(body=body, own_id=own), assigned, request),
    st.binary(max_size=300),
    st.one_of(st.none(), st.binary(max_size=64)),
    ids,
    st.just(b"") | st.binary(min_size=40, max_size=40),
)
u32 = st.integers(0, 2**32 - 1)
pieces_of = st.builds(
    lambda records, of, offset, delta, queue, attempt, at: piece(
        records, of=of, offset=offset, delta=delta, queue=queue, attempt=attempt, stored_at_ms=at
    ),
    st.lists(records_of, max_size=6),
    st.sampled_from([token(), bytes(48), b"\xff" * 48]),
    st.integers(0, 2**64 - 1),
    u32,
    u32,
    u32,
    st.integers(-(2**63), 2**63 - 1),
)
runs_of = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2) | st.sampled_from([LOCAL | 106, LOCAL | 100])))


def both(*arguments):
    """What each twin answers, an error counting as an answer."""
    outcomes = []
    for build in (native.build_reply, deliver_pure.build_reply):
        try:
            outcomes.append(build(*arguments))
        except PayloadError:
            outcomes.append(PayloadError)
    return outcomes


@given(
    pieces=st.lists(pieces_of, max_size=4),
    codes=st.lists(st.sampled_from([0, 100, 106, 999]), min_size=0, max_size=3),
    runs=runs_of,
    seqid=st.integers(-(2**31), 2**31 - 1),
    tail=st.binary(max_size=20),
    size_max=st.integers(0, 4000),
)
def test_twins_build_the_same_bytes(pieces, codes, runs, seqid, tail, size_max):
    packed = b"".join(RUN.pack(*run) for run in runs)
    one, other = both(seqid, 0, answer(pieces, codes), pieces_at(codes), 4, packed, tail, size_max, REPLY_KEY)
    assert one == other


@given(pieces=st.lists(pieces_of, min_size=1, max_size=3), data=st.data())
def test_twins_agree_on_damaged_bytes(pieces, data):
    payload = bytearray(answer(pieces))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(4, len(payload)))
    one, other = both(1, 0, bytes(payload[:cut]), 4, 4, b"", b"", REPLY_BYTES_MAX)
    assert one == other


def test_the_contract_decodes_every_field_of_a_full_message(twin):
    full = Message(
        topic="t", body=b"\0\xff", key="k", tag="g", properties={"a": "b"}, id="own", delay_ms=5, reply_to=b"r"
    )
    frame, *_ = reply(twin, [piece([record(encode(full))])])
    delivered = decode_reply(frame)[1].deliveries[0].message
    assert {name: getattr(delivered, name) for name in vars(full)} == vars(full)
