"""One PRODUCE as records and its answer, in both forms."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.contract import Code, Message, encode_struct
from common.kafka.errors import KafkaRefusal
from common.kafka.records import ProduceResults
from engine.link.errors import PayloadError
from engine.link.produce import ANY_PARTITION, ProducedMessage, ProducedResult, decode_produced, encode_produce
from kafka_bridge import batch as reference
from kafka_bridge import native
from tests.unit.kafka_bridge.test_mapping import messages

patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FORMS = [reference, native] if native.NATIVE else [reference]
TOPICS = ["orders", "pay", "gone"]
reserved = st.just(Message(topic="t", id="a", properties={"penstock-x": "1"}))
sent = st.builds(
    lambda topic, partition, own_id, message: ProducedMessage(topic, partition, own_id, encode_struct(message)),
    st.integers(0, 2),
    st.sampled_from((ANY_PARTITION, ANY_PARTITION, 2)),
    st.none() | st.binary(min_size=16, max_size=16),
    messages | reserved,
)


@pytest.fixture(params=FORMS, ids=lambda form: form.__name__)
def form(request):
    return request.param


def partitions_of(topic):
    if topic == "gone":
        raise KafkaRefusal(3, "no such topic")
    return {"orders": 7, "pay": 1}[topic]


def told(form, payload, code=0):
    """(records, answer, counts) of a request whose records all get this code, or the sentence of a PayloadError."""
    try:
        batch = form.OutgoingBatch(payload)
    except PayloadError as fault:
        return str(fault).partition(":")[0]
    records = batch.map(partitions_of, 5, turn=10)
    count = len(records.topics)
    sentences = {0: "too large"} if code and count else {}
    answer = batch.settle(ProduceResults([code] * count, [*range(count)] if not code else [-1] * count, sentences))
    *columns, headers = records
    plain = [*map(list, columns), [list(each) for each in headers]]
    return plain, answer, batch.counts, batch.cluster, batch.patience_ms, batch.size


@patient
@given(st.lists(sent, max_size=8), st.sampled_from((0, 0, int(Code.TOO_LARGE))))
def test_both_forms_make_the_same_records_and_answers(wanted, code):
    payload = encode_produce("main", TOPICS, 3000, wanted)
    found = [told(form, payload, code) for form in FORMS]
    assert found == found[:1] * len(FORMS)
    assert len(decode_produced(found[0][1], len(wanted))) == len(wanted)


@patient
@given(st.lists(sent, min_size=1, max_size=4), st.data())
def test_damaged_bytes_are_told_alike_and_raise_nothing_else(wanted, data):
    payload = bytearray(encode_produce("main", TOPICS, 3000, wanted))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(payload[: data.draw(st.integers(0, len(payload)))] if data.draw(st.booleans()) else payload)
    try:
        found = [told(form, damaged) for form in FORMS]
    except (KeyError, UnicodeDecodeError):  # of a topic's name that was damaged
        return
    assert found == found[:1] * len(FORMS)


def test_more_messages_than_there_is_room_for_are_an_error(form):
    head = struct.pack("<IIHxx", 1, 0xFFFFFFFF, 0) + struct.pack("<H", 1) + b"c"
    with pytest.raises(PayloadError):
        form.OutgoingBatch(head)


def test_a_partition_that_no_topic_can_have_is_an_error(form):
    with pytest.raises(PayloadError, match="partition -2"):
        form.OutgoingBatch(encode_produce("main", TOPICS, 3000, [ProducedMessage(0, -2, None, b"")]))


def test_results_stand_in_the_order_of_the_messages_also_where_some_are_no_records(form):
    one = [ProducedMessage(topic, ANY_PARTITION, bytes(16), encode_struct(Message(topic="t"))) for topic in (0, 2, 1)]
    bad = ProducedMessage(0, ANY_PARTITION, bytes(16), b"\x0b\0\1")
    batch = form.OutgoingBatch(encode_produce("main", TOPICS, 3000, [*one, bad]))
    assert batch.map(partitions_of, 5, turn=10).topics == ["orders", "pay"]
    answer = batch.settle(ProduceResults([0, int(Code.TIMEOUT)], [41, -1], {1: "slow"}))
    first, gone, second, broken = decode_produced(answer, 4)
    assert (first, second) == (ProducedResult(0, 3, 41), ProducedResult(int(Code.TIMEOUT), 0, -1, "slow"))
    assert (gone.code, broken.code) == (Code.UNAVAILABLE, Code.INVALID)
    assert gone.sentence == "no such topic; nothing was stored" and "not a message" in broken.sentence
    assert batch.counts == {0: 1, int(Code.TIMEOUT): 1, int(Code.UNAVAILABLE): 1, int(Code.INVALID): 1}


def test_a_refused_request_has_one_sentence_per_message(form):
    batch = form.OutgoingBatch(encode_produce("main", TOPICS, 3000, [ProducedMessage(0, 1, None, b"\0")] * 2))
    refused = ProducedResult(int(Code.OVERLOADED), 0, -1, "full")
    assert decode_produced(batch.refused(int(Code.OVERLOADED), "full"), 2) == [refused] * 2
    assert batch.counts == {int(Code.OVERLOADED): 2}
