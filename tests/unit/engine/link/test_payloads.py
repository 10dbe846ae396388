"""Payloads beside PULL: what production sends is what production decodes; cut or lying bytes are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.cluster.coordination import parse_record, parse_registration
from common.config.errors import StoreDamaged
from engine.link.append import FSYNC, encode_append, encode_resend, read_end, read_results
from engine.link.batch import BATCH_HEADER, encode_batch
from engine.link.errors import PayloadError
from engine.link.find import decode_counts, decode_find, decode_found
from engine.link.integers import U32
from engine.link.look_up import decode_look_up_answer, encode_look_up
from engine.link.pieces import AnswerPiece, encode_pieces
from engine.link.produce import decode_produced
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion, ReadReport
from engine.link.receipt import encode_receipt, split_receipt
from engine.link.record import StoredRecord, encode_record, read_record, split_records
from engine.link.timer import ANY_QUEUE, Timer, decode_added, encode_add, parse
from engine.link.topic import encode_topics
from engine.log.format import pack_batch
from engine.ops.read import PositionRead

PIECE = AnswerPiece(bytes(48), 5, 0, 1, 1, 0, 77, encode_record(b"m\0", b"i" * 16))


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=40),
            st.sampled_from([b"", b"i" * 16]),
            st.sampled_from([b"", b"t" * 40]),
        ),
        max_size=4,
    )
)
def test_records_are_read_as_they_were_written(made):
    records, at, found = b"".join(encode_record(*each) for each in made), 0, []
    while at < len(records):
        record, at = read_record(records, at)
        found.append(record)
    assert found == [StoredRecord(assigned, message, token) for message, assigned, token in made]
    assert list(split_records(records)) == [(assigned or None, message) for message, assigned, _ in made]


@pytest.mark.parametrize("assigned, token", [(b"", b""), (b"i" * 16, b""), (b"", b"t" * 40), (b"i" * 16, b"t" * 40)])
def test_a_record_that_is_cut_or_too_short_is_refused(assigned, token):
    sound = encode_record(b"message", assigned, token)
    for cut in range(1, len(sound)):
        with pytest.raises(PayloadError):
            list(split_records(sound[:cut]))
    if assigned or token:
        with pytest.raises(PayloadError, match="shorter than"):
            read_record(U32.pack(2) + sound[4:6], 0)


def test_a_read_arrives_at_the_server_as_it_was_asked():
    positions = [ReadPosition("orders", 1, 5, 9), ReadPosition("orders", 2, at_time_ms=-1), ReadPosition("orders", 3)]
    reading = PositionRead(ReadQuestion(positions, 7, 800, 900).encode(), lambda done: None)
    assert (reading.messages, reading.bytes, reading.wait_ms) == (7, 800, 900)
    assert [ReadPosition(**asked) for asked in reading.asked] == positions


def test_a_reads_answer_is_decoded_or_refused():
    reports = [ReadReport(0, 6, 0, 8), ReadReport(107, None, 3, 8, "too old")]
    text = json.dumps({"reports": [each._asdict() for each in reports]}).encode()
    payload = U32.pack(len(text)) + text + encode_pieces([PIECE])
    answer = ReadAnswer.decode(payload)
    assert (answer.reports, list(answer.pieces())) == (reports, [PIECE])
    assert list(ReadAnswer.of(reports, [PIECE]).pieces()) == [PIECE]
    for cut in range(len(payload)):
        with pytest.raises(PayloadError):
            list(ReadAnswer.decode(payload[:cut]).pieces())


@given(st.binary(max_size=100))
def test_any_bytes_are_an_answer_or_refused(payload):
    for decode in (ReadAnswer.decode, decode_look_up_answer):
        try:
            decode(payload)
        except PayloadError as error:
            assert str(error)


def test_a_look_up_is_decoded_as_it_was_encoded():
    assert json.loads(encode_look_up(5, 10, None, topic="orders", id="a")) == {
        "topic": "orders", "id": "a", "from_ms": 5, "limit": 10, "next": None
    }  # fmt: skip
    head = b'{"next": null}'
    assert decode_look_up_answer(U32.pack(len(head)) + head + encode_pieces([PIECE])) == ({"next": None}, [PIECE])


def test_batches_are_those_of_the_log():
    records = [encode_record(b"a\0"), encode_record(b"bc\0", b"i" * 16)]
    batch = encode_batch(7, 3, records)
    assert batch == pack_batch(0, 7, 3, records)
    checked = BATCH_HEADER.unpack_from(encode_batch(7, 3, records[:1], 600_000))
    assert (checked[4], checked[9]) == (1, 600_000)
    assert encode_append(FSYNC, batch, batch)[:8] == b"\2\0\0\0\2\0\0\0"
    answer = b"\2\0\0\0\5\0\0\0\1\0\0\0\0\0\0\0" + b"\7" + bytes(7)
    assert (list(read_results(answer)), read_end(answer)) == ([(2, 5, 1)], 7)
    assert encode_resend(9, b"append") == b"\x09" + bytes(7) + b"append"


def test_topics_are_asked_for_by_name_and_queues():
    assert json.loads(encode_topics([("orders", 4)])) == {"topics": [{"name": "orders", "queues": 4}]}


def test_timers_are_decoded_as_they_were_encoded():
    timer = Timer(5, 1, ANY_QUEUE, 0, 0, 0, 0, 0, 1, 2, 0, b"\0ab\0")
    assert parse(encode_add(1, [timer]), 8) == timer
    answer = b"\2\0\0\0\5\0\0\0\1\0\0\0\0\0\0\0" + b"\0\0\0\0" + bytes(12)
    assert decode_added(answer) == [(2, 5, 1), (0, None, None)]


def test_receipts_split_into_token_and_number():
    assert split_receipt(encode_receipt(b"t" * 48, 7)) == (b"t" * 48, 7)
    assert split_receipt(b"t" * 51) is None


NESTED = b'{"a":' * 20_000
TOLD = U32.pack(len(NESTED)) + NESTED


@pytest.mark.parametrize(
    "decode",
    [
        lambda: decode_find(NESTED), lambda: decode_found(NESTED), lambda: decode_counts(NESTED),
        lambda: decode_produced(NESTED, 0), lambda: decode_look_up_answer(TOLD), lambda: ReadAnswer.decode(TOLD),
        lambda: parse_record(NESTED, "RECORD"), lambda: parse_registration(NESTED) or refuse(),
    ],
)  # fmt: skip
def test_json_that_is_nested_too_deeply_is_no_error_of_the_process(decode):
    with pytest.raises((PayloadError, StoreDamaged)):
        decode()


def refuse():
    raise PayloadError("a registration that is damaged is none")
