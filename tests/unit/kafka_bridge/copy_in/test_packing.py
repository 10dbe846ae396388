"""Packing of copied records, in both forms: the bytes of a batch's records, its size, and what is left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kafka.copy_mark import COPY_HEADER, CopyMark, content_hash, parse_copy_mark
from engine.link.record import read_record
from kafka_bridge.copy_in import native, packing
from kafka_bridge.copy_in.messages import ForeignRecordTooLarge, RecordPlace, message_of
from tests.unit.kafka_bridge.copy_in.foreign_records import TARGET, ForeignRecord, columns, decoded, foreign

FORMS = [packing, native] if native.NATIVE else [packing]
PLAIN = ForeignRecord(b"k", b"v" * 100, [("a", b"1")], 5)
LARGE = ForeignRecord(None, b"", [("a", b"x" * 32_768)], 5)


@pytest.fixture(params=FORMS, ids=lambda form: form.__name__)
def form(request):
    return request.param


def unpacked(packed):
    """(message, assigned id, source offset) of each record."""
    at, found = 0, []
    for _ in range(packed.copied):
        record, at = read_record(packed.data, at)
        found.append((record.message, record.assigned_id or None, record.source_offset))
    assert at == len(packed.data)
    return found


@given(records=st.lists(foreign, max_size=6), first=st.integers(0, 2))
def test_records_are_packed_as_their_messages_with_their_offsets(records, first):
    fetched = columns(records, 1 << 40, step=3)
    wanted = []
    for index in range(first, len(records)):
        place = RecordPlace(TARGET.kafka_topic_id, TARGET.partition, fetched.offsets[index])
        key, value, headers, timestamp = records[index]
        try:
            found = message_of(TARGET.topic, place, timestamp, key, value, headers)
        except ForeignRecordTooLarge:
            break
        wanted.append((*found, fetched.offsets[index]))
    for each in FORMS:
        packed = each.pack(fetched, first, TARGET, 1 << 20)
        assert unpacked(packed) == wanted
        assert packed.following == max(first, len(wanted) + first) or packed.following == len(records) < first
        assert bool(packed.fault) == (packed.following < len(records))


@given(st.lists(foreign, max_size=6))
def test_both_forms_make_the_same_bytes(records):
    made = [each.pack(columns(records, 9), 0, TARGET, 700) for each in FORMS]
    assert made == made[:1] * len(FORMS)


@given(st.lists(foreign, max_size=6), st.integers(0, 6))
def test_decoded_records_are_packed_as_those_that_a_driver_gives_as_objects(records, first):
    wanted = packing.pack(columns(records, 9), first, TARGET, 700)
    fetched = decoded(records, 9)
    for each in FORMS:
        assert each.pack(fetched, first, TARGET, 700) == wanted
    part = fetched._replace(**{name: getattr(fetched, name)[first:] for name in fetched._fields[2:]})
    assert native.pack(part, 0, TARGET, 700)[:2] == wanted[:2]


def test_names_that_are_not_utf8_and_what_is_null_or_repeated_are_kept(form):
    record = ForeignRecord(b"\xff\x00", None, [("a", None), ("b", b"\xff"), ("c", b"1"), ("c", b"2"), ("d", b"ok")], 5)
    packed = form.pack(columns([record]), 0, TARGET, 1 << 20)
    assert packed == packing.pack(columns([record]), 0, TARGET, 1 << 20) and packed.copied == 1


def test_a_batch_ends_with_the_record_that_reaches_its_size(form):
    fetched = columns([PLAIN] * 5)
    one = len(form.pack(columns([PLAIN]), 0, TARGET, 1).data)
    assert form.pack(fetched, 0, TARGET, 2 * one).following == 2
    assert form.pack(fetched, 0, TARGET, 2 * one + 1).following == 3
    assert form.pack(fetched, 3, TARGET, 1 << 20)[1:] == (2, 5, 0, "")
    assert form.pack(fetched, 5, TARGET, 1 << 20) == packing.PackedRecords(b"", 0, 5, 0)


def test_packing_ends_before_a_record_that_is_too_large_and_tells_why(form):
    packed = form.pack(columns([PLAIN, LARGE, PLAIN]), 0, TARGET, 1 << 20)
    assert (packed.copied, packed.following) == (1, 1) and "at most 32,768" in packed.fault
    again = form.pack(columns([PLAIN, LARGE, PLAIN]), 1, TARGET, 1 << 20)
    assert (again.copied, again.following) == (0, 1) and again.fault == packed.fault


def marked(key=b"k", value=b"v", log_id="log", topic_id=12, content=None):
    mark = CopyMark(log_id, topic_id, 3, 99, content or content_hash(key, value))
    return ForeignRecord(key, value, [("a", b"1"), (COPY_HEADER, mark.encode())], 5)


def test_a_copy_of_the_topic_itself_is_left_out_and_counted(form):
    packed = form.pack(columns([PLAIN, marked(), marked(None, None), PLAIN]), 0, TARGET, 1 << 20)
    assert (packed.copied, packed.following, packed.skipped) == (2, 4, 2)
    assert [offset for *_, offset in unpacked(packed)] == [0, 3]


@pytest.mark.parametrize(
    "record",
    [
        marked(log_id="another"),
        marked(topic_id=13),
        marked(value=b"other", content=content_hash(b"k", b"v")),
        marked(key=None, content=content_hash(b"k", b"v")),
        ForeignRecord(b"k", b"v", [(COPY_HEADER, b"no mark")], 5),
        ForeignRecord(b"k", b"v", [(COPY_HEADER, None)], 5),
        ForeignRecord(b"k", b"v", marked().headers * 2, 5),
    ],
)
def test_a_record_whose_mark_names_another_topic_or_other_content_is_copied(form, record):
    packed = form.pack(columns([record]), 0, TARGET, 1 << 20)
    assert (packed.copied, packed.skipped) == (1, 0)


@given(
    st.text(st.characters(codec="ascii", exclude_characters=" "), min_size=1),
    st.integers(0, 1 << 63),
    st.binary(min_size=8, max_size=8),
)
def test_a_mark_is_found_again_in_its_header(log_id, offset, content):
    mark = CopyMark(log_id, 7, 3, offset, content)
    assert parse_copy_mark(mark.encode()) == mark


@given(st.none() | st.binary())
def test_other_header_values_are_no_marks(value):
    mark = parse_copy_mark(value)
    assert mark is None or len(value.split(b" ")) == 5
