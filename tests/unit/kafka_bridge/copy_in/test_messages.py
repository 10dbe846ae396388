"""Kafka records as messages, and back: every row of the table "Copying in" of docs/design/0034-kafka.md."""

import base64
import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.contract import Message, decode_struct, encode_struct
from common.ids import assigned_at_ms, show_id
from common.kafka.records import NO_TIMESTAMP
from kafka_bridge.copy_in.foreign_headers import decode_headers, encode_headers
from kafka_bridge.copy_in.messages import (
    HEADERS_PROPERTY,
    KEY_PROPERTY,
    NULL_PROPERTY,
    TIME_PROPERTY,
    ForeignRecordTooLarge,
    RecordPlace,
    id_of_place,
    message_of,
)
from kafka_bridge.mapping import ID_HEADER, TAG_HEADER, record_of
from tests.unit.kafka_bridge.copy_in.foreign_records import ASSIGNED, foreign, sent_messages

PLACE = RecordPlace(bytes(range(16)), 3, 77)
TIME_MS = 1_700_000_000_123


def copied(key=None, value=b"v", headers=(), timestamp=TIME_MS):
    """The message of a record, and its id as consumers see it."""
    encoded, assigned = message_of(b"orders", PLACE, timestamp, key, value, headers)
    message = decode_struct(Message, encoded)
    assert (assigned is None) != (message.id is None)
    return message, message.id if assigned is None else show_id(assigned)


def record_again(message: Message, shown_id: str):
    """Key, value, headers and timestamp of the record that a message was copied from; written without `message_of`."""
    properties = dict(message.properties or {})
    time = int(properties.pop(TIME_PROPERTY, NO_TIMESTAMP))
    value = None if properties.pop(NULL_PROPERTY, None) else message.body
    raw_key = properties.pop(KEY_PROPERTY, None)
    key = base64.b64decode(raw_key) if raw_key is not None else message.key and message.key.encode()
    key = b"" if raw_key is None and message.key == "" else key
    others = decode_headers(properties.pop(HEADERS_PROPERTY, "").encode())
    headers = [(name, value.encode()) for name, value in properties.items()] + others
    if shown_id != show_id(id_of_place(PLACE)):
        headers.append((ID_HEADER, shown_id.encode()))
    if message.tag is not None:
        headers.append((TAG_HEADER, message.tag.encode()))
    return key, value, headers, time


def sort(headers):
    return sorted(headers, key=repr)


@given(foreign)
def test_a_record_is_found_again_in_its_message(record):
    try:
        message, shown_id = copied(*record)
    except ForeignRecordTooLarge:
        return  # the tests below say when
    key, value, headers, timestamp = record_again(message, shown_id)
    if len(record.key or b"") <= 4096:
        assert key == record.key
    assert (value, timestamp) == (record.value, record.timestamp)
    assert sort(headers) == sort(record.headers)


@given(sent_messages)
@example(Message(topic="orders", key="", body=b"", id="x"))
def test_what_was_sent_to_a_kafka_home_comes_back_as_it_was(message):
    key, value, headers = record_of(encode_struct(message), None)
    found, shown_id = copied(key, value, headers)
    assert (found.key, found.tag, shown_id) == (message.key, message.tag, message.id)
    assert found.body == (message.body or b"")
    assert {**(message.properties or {}), TIME_PROPERTY: str(TIME_MS)} == found.properties


def test_an_assigned_id_is_assigned_again_and_a_clients_id_is_its_own():
    assert copied(headers=[(ID_HEADER, ASSIGNED.hex().encode())])[0].id is None
    assert copied(headers=[(ID_HEADER, ASSIGNED.hex().encode())])[1] == ASSIGNED.hex()
    assert copied(headers=[(ID_HEADER, b"mine")])[0].id == "mine"


def test_a_record_without_an_id_gets_one_that_its_place_decides():
    place = PLACE.topic_id + (3).to_bytes(4, "big") + (77).to_bytes(8, "big")
    assert copied()[1] == hashlib.blake2b(place).hexdigest()[:32] == copied(value=b"another")[1]
    assert id_of_place(PLACE._replace(offset=78)) != id_of_place(PLACE)
    assert assigned_at_ms(copied()[1]) is None, "it tells no time"


@pytest.mark.parametrize(
    "headers",
    [
        [(ID_HEADER, b"a"), (ID_HEADER, b"b")],
        [(ID_HEADER, None)],
        [(ID_HEADER, b"\xff")],
        [(ID_HEADER, b"")],
        [(ID_HEADER, b"x" * 65)],
        [(TAG_HEADER, b"two words")],
        [(TAG_HEADER, b"")],
        [("twice", b"1"), ("once", b"2"), ("twice", b"3")],
        [("null", None)],
        [("bytes", b"\xff")],
        [("penstock-time", b"forged")],
    ],
)
def test_headers_that_cannot_be_properties_are_kept_in_their_order(headers):
    message, shown_id = copied(headers=headers)
    kept = [each for each in headers if each[0] != "once"]
    assert decode_headers(message.properties[HEADERS_PROPERTY].encode()) == kept
    assert shown_id == show_id(id_of_place(PLACE)) and message.tag is None
    assert message.properties.get("once") == ("2" if len(headers) == 3 else None)
    assert message.properties[TIME_PROPERTY] == str(TIME_MS)


def test_more_headers_than_properties_are_kept_beside_them():
    headers = [(f"h{number}", b"%d" % number) for number in range(70)]
    message, _ = copied(headers=headers)
    assert message.properties["h63"] == "63" and "h64" not in message.properties
    assert decode_headers(message.properties[HEADERS_PROPERTY].encode()) == headers[64:]


def test_keys_that_are_no_text_keep_their_order_by_their_hexadecimal_form():
    message, _ = copied(key=b"\xff\x00")
    assert (message.key, message.properties[KEY_PROPERTY]) == ("ff00", base64.b64encode(b"\xff\x00").decode())
    long = b"\xff" * 2049
    assert copied(key=long)[0].key == hashlib.sha256(long).hexdigest()
    assert copied(key=b"k" * 4096)[0].key == "k" * 4096
    assert copied(key=b"k" * 4097)[0].key == hashlib.sha256(b"k" * 4097).hexdigest()


def test_a_tombstone_is_no_empty_body():
    assert copied(value=None)[0].body is None and copied(value=None)[0].properties[NULL_PROPERTY] == "value"
    assert copied(value=b"")[0].body == b"" and NULL_PROPERTY not in copied(value=b"")[0].properties


def test_a_record_without_a_time_has_no_property_of_it():
    assert copied(timestamp=NO_TIMESTAMP)[0].properties is None
    assert copied(timestamp=0)[0].properties == {TIME_PROPERTY: "0"}


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"value": bytes(16_000_001)}, r"its value has 16,000,001 bytes: at most 16,000,000"),
        ({"headers": [("h", b"x" * 32_768)]}, r"need 32,769 bytes of properties: at most 32,768"),
        ({"key": b"\xff" * 30_000}, r"its headers and its key need 40,012 bytes"),
    ],
)
def test_what_the_engine_cannot_take_is_refused_with_the_limit(record, sentence):
    with pytest.raises(ForeignRecordTooLarge, match=sentence):
        copied(**record)


@given(foreign)
def test_headers_are_found_again_in_their_text(record):
    assert decode_headers(encode_headers(record.headers)) == list(record.headers)


@given(st.binary(max_size=40))
def test_a_text_that_holds_no_headers_is_refused_by_name(data):
    try:
        decode_headers(base64.b64encode(data))
        decode_headers(data)
    except ValueError as fault:
        assert str(fault).startswith("penstock-headers: ")
