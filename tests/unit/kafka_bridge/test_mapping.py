"""Messages as Kafka records, and back: every row of the table of records in docs/kafka.md."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.contract import Message, encode_struct
from engine.link.produce import RESERVED_PREFIX
from kafka_bridge.mapping import ID_HEADER, TAG_HEADER, MappedRecord, UnmappableMessage, record_of

ASSIGNED = bytes(range(16))
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
names = text.filter(lambda name: not name.startswith(RESERVED_PREFIX))
messages = st.builds(
    Message,
    topic=text,
    body=st.none() | st.binary(max_size=200),
    key=st.none() | text,
    tag=st.none() | text.filter(bool),
    id=text,
    properties=st.none() | st.dictionaries(names, text, max_size=8),
    delay_ms=st.none() | st.integers(0, 1 << 40),
)


def read_back(record: MappedRecord) -> Message:
    """The message that a record stands for, written without `record_of`."""
    headers = dict(record.headers)
    assert len(headers) == len(record.headers)
    return Message(
        body=record.value,
        key=None if record.key is None else record.key.decode(),
        id=headers.pop(ID_HEADER).decode(),
        tag=None if TAG_HEADER not in headers else headers.pop(TAG_HEADER).decode(),
        properties={name: value.decode() for name, value in headers.items()},
    )


@given(messages)
def test_a_message_is_found_again_in_its_record(message):
    found = read_back(record_of(encode_struct(message), None))
    assert (found.key, found.id, found.tag) == (message.key, message.id, message.tag)
    assert (found.body, found.properties) == (message.body or b"", message.properties or {})


@given(messages)
def test_an_assigned_id_stands_in_the_record_as_senders_see_it(message):
    message.id = None
    headers = dict(record_of(encode_struct(message), ASSIGNED).headers)
    assert headers[ID_HEADER] == ASSIGNED.hex().encode()


def test_an_empty_key_is_a_key_and_none_is_null():
    assert record_of(encode_struct(Message(topic="t", key="")), ASSIGNED).key == b""
    assert record_of(encode_struct(Message(topic="t")), ASSIGNED).key is None


def test_headers_are_in_the_order_id_tag_properties():
    message = Message(topic="t", id="a", tag="b", properties={"x": "1", "y": "2"})
    names = [name for name, _ in record_of(encode_struct(message), None).headers]
    assert names[:2] == [ID_HEADER, TAG_HEADER] and set(names[2:]) == {"x", "y"}


def test_a_property_with_a_reserved_name_is_refused_by_name():
    message = Message(topic="t", properties={"penstock-id": "x"})
    with pytest.raises(
        UnmappableMessage, match=r'^Message\.properties: "penstock-id": names that begin with penstock-'
    ):
        record_of(encode_struct(message), ASSIGNED)


@given(messages, st.data())
def test_bytes_that_are_no_message_are_refused_and_nothing_else_is_raised(message, data):
    encoded = bytearray(encode_struct(message))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    try:
        record_of(bytes(encoded[:cut]), None)
    except UnmappableMessage as refusal:
        assert str(refusal).startswith("Message")
