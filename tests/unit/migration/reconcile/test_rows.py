"""Rows of messages, in both forms: what a copier makes of a record has the record's row, and what differs is found."""

import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.contract import Message, decode_struct, encode_struct
from common.kafka.copy_mark import COPY_HEADER, CopyMark, content_hash
from common.kafka.repair_mark import REPAIR_NAME, RepairMark, parse_repair_mark, repair_hash
from engine.link.errors import PayloadError
from engine.link.record import encode_record, read_record
from kafka_bridge.copy_in import packing
from kafka_bridge.mapping import ID_HEADER, record_of
from migration.reconcile import native, row_sets, rows
from migration.reconcile.row_sets import WINDOW
from migration.reconcile.rows import OFFSET_MAX, REPAIRED, ROW, ROW_SIZE, QueueScope
from tests.unit.kafka_bridge.copy_in.foreign_records import TARGET, ForeignRecord, columns, foreign, sent_messages

REFERENCE = SimpleNamespace(**{**vars(rows), **vars(row_sets)})
FORMS = [REFERENCE, native] if native.NATIVE else [REFERENCE]
KEY = (0x0123456789ABCDEF, 0xFEDCBA9876543210)
SCOPE = QueueScope(b"t" * 16, 3, "log", 12, 0, OFFSET_MAX, 0, OFFSET_MAX)
MINUTE = 1_700_000_000_000 // 60_000


@pytest.fixture(params=FORMS, ids=lambda form: "native" if form is native else "reference")
def form(request):
    return request.param


def split(found):
    return [*ROW.iter_unpack(found)]


def unlike_offsets(found):
    return [(shown, content, minute, size) for shown, content, _, minute, size in split(found)]


@given(st.lists(foreign.filter(lambda each: COPY_HEADER not in dict(each.headers)), max_size=6))
def test_a_record_and_the_engines_copy_of_it_have_the_same_row(records):
    fetched = columns(records, 100, step=3)
    packed = packing.pack(fetched, 0, TARGET, 1 << 30)
    for each in FORMS:
        stored = each.rows_of_stored(packed.data, packed.copied, 7, 5, SCOPE, KEY)
        made = each.rows_of_records(columns(records[: packed.copied], 100, step=3), SCOPE, KEY)
        assert unlike_offsets(stored) == unlike_offsets(made)
        assert [row[2] for row in split(stored)] == [*range(7, 7 + packed.copied)]
        assert [row[2] for row in split(made)] == [*fetched.offsets[: packed.copied]]


@given(st.lists(foreign, max_size=6))
def test_both_forms_make_the_same_rows_of_records_and_of_what_is_stored(records):
    fetched = columns(records, 9)
    packed = packing.pack(fetched, 0, TARGET, 1 << 30)
    for scope in (SCOPE, SCOPE._replace(source_first=10, source_end=12)):
        made = [each.rows_of_records(fetched, scope, KEY) for each in FORMS]
        assert made == made[:1] * len(FORMS)
        stored = [each.rows_of_stored(packed.data, packed.copied, 7, 5, scope, KEY) for each in FORMS]
        assert stored == stored[:1] * len(FORMS)


def marked_records(messages):
    """Messages of the engine as a copier writes them to Kafka, each at the offset of its index."""
    made = []
    for offset, message in enumerate(messages):
        key, value, headers = record_of(encode_struct(message), None)
        mark = CopyMark("log", 12, 3, offset, content_hash(key, value))
        made.append(ForeignRecord(key, value, [*headers, (COPY_HEADER, mark.encode())], 600_000))
    return made


@given(st.lists(sent_messages.filter(lambda each: each.id), max_size=5))
def test_a_message_of_the_engines_own_and_its_copy_in_kafka_have_the_same_row(messages):
    data = b"".join(encode_record(encode_struct(each)) for each in messages)
    for each in FORMS:
        stored = each.rows_of_stored(data, len(messages), 0, 600_000, SCOPE, KEY)
        made = each.rows_of_records(columns(marked_records(messages), 50), SCOPE, KEY)
        assert unlike_offsets(stored) == unlike_offsets(made)
        assert [row[3] for row in split(stored)] == [10] * len(messages)


def test_messages_outside_the_scope_have_no_row(form):
    scope = SCOPE._replace(source_first=2, source_end=4, own_first=1, own_end=2)
    plain = [ForeignRecord(b"k", b"v", (), 5)] * 6
    assert [row[2] for row in split(form.rows_of_records(columns(plain), scope, KEY))] == [2, 3]
    packed = packing.pack(columns(plain), 0, TARGET, 1 << 30)
    assert [row[2] for row in split(form.rows_of_stored(packed.data, 6, 100, 5, scope, KEY))] == [102, 103]
    own = [Message(topic="orders", id=f"m{each}", body=b"b") for each in range(3)]
    data = b"".join(encode_record(encode_struct(each)) for each in own)
    assert [row[2] for row in split(form.rows_of_stored(data, 3, 0, 5, scope, KEY))] == [1]
    assert [row[2] for row in split(form.rows_of_records(columns(marked_records(own), 90), scope, KEY))] == [91]


def test_id_key_and_body_each_change_the_row(form):
    def row(key, value, name=b"a"):
        return split(form.rows_of_records(columns([ForeignRecord(key, value, [(ID_HEADER, name)], 5)]), SCOPE, KEY))[0]

    first = row(b"k", b"v")
    others = [row(None, b"v"), row(b"", b"v"), row(b"v", b"k"), row(b"k", b"w"), row(b"kv", b"")]
    assert {each[0] for each in others} == {first[0]}
    assert len({each[1] for each in [first, *others]}) == 6
    assert row(b"k", b"v", b"b")[:2] != first[:2] and row(b"k", b"v", b"b")[0] != first[0]
    assert row(b"k", None)[1] == row(b"k", b"")[1]


def repaired(offset, is_own, name="mine", body=b"b"):
    mark = RepairMark(SCOPE.kafka_topic_id, is_own, offset, repair_hash(name.encode(), b"k", body))
    return {REPAIR_NAME: mark.encode().decode(), "penstock-time": "600000"}


@pytest.mark.parametrize("is_own", [False, True])
def test_a_repair_counts_as_the_message_that_was_missing(form, is_own):
    scope = SCOPE._replace(source_first=40, source_end=41, own_first=40, own_end=41)
    message = Message(topic="orders", id="mine", key="k", body=b"b", properties=repaired(40, is_own))
    stored = form.rows_of_stored(encode_record(encode_struct(message)), 1, 7, 1, scope, KEY)
    headers = [(ID_HEADER, b"mine"), (REPAIR_NAME, repaired(40, is_own)[REPAIR_NAME].encode())]
    made = form.rows_of_records(columns([ForeignRecord(b"k", b"b", headers, 600_000)], 9), scope, KEY)
    assert unlike_offsets(stored) == unlike_offsets(made)
    assert [split(each)[0][2] for each in (stored, made)] == [7 | REPAIRED, 9 | REPAIRED]


def test_a_repair_mark_on_another_body_is_none(form):
    scope = SCOPE._replace(own_first=7, own_end=8)
    message = Message(topic="orders", id="mine", key="k", body=b"other", properties=repaired(40, False))
    (row,) = split(form.rows_of_stored(encode_record(encode_struct(message)), 1, 7, 1, scope, KEY))
    assert row[2] == 7


def test_damaged_records_are_told_and_not_read_beyond_their_end(form):
    whole = encode_record(encode_struct(Message(topic="orders", id="m", body=b"body")))
    for size in range(len(whole)):
        with pytest.raises(PayloadError, match="record at byte"):
            form.rows_of_stored(whole[:size], 1, 0, 0, SCOPE, KEY)


@given(
    st.lists(st.tuples(*[st.integers(0, (1 << 64) - 1)] * 2, st.integers(0, 9), st.integers(0, 3), st.integers(0, 9)))
)
def test_windows_have_counts_sums_and_bounds_of_their_rows(values):
    data = b"".join(ROW.pack(*each) for each in values)
    for each in FORMS:
        windows = {}
        each.fold(data, windows)
        assert set(windows) == {minute for *_, minute, _ in values}
        for minute, window in windows.items():
            own = [row for row in values if row[3] == minute]
            ids = contents = 0
            for shown, content, *_ in own:
                ids, contents = ids ^ shown, contents ^ content
            offsets = [row[2] for row in own]
            wanted = (len(own), sum(row[4] for row in own), ids, contents, min(offsets), max(offsets))
            assert WINDOW.unpack(window) == wanted


few_rows = st.lists(st.builds(ROW.pack, *[st.integers(0, 2)] * 4, st.just(0)), max_size=12).map(b"".join)


@given(few_rows, few_rows)
@settings(max_examples=300)
def test_both_forms_find_the_ids_whose_contents_differ(left, right):
    sides = [row_sets.ordered(left), row_sets.ordered(right)]
    found = row_sets.differing(*sides)
    for each in FORMS:
        assert [each.ordered(left), each.ordered(right)] == sides
        assert each.chosen(left, {1}) == b"".join(
            left[at : at + ROW_SIZE] for at in range(0, len(left), ROW_SIZE) if left[at + 27] == 1
        )
        assert each.differing(*sides) == found
    equal = {row[0] for row in split(left + right)} - {row[0] for row in split(found)}
    for shown in equal:
        contents = [sorted(row[1] for row in split(side) if row[0] == shown) for side in sides]
        assert contents[0] == contents[1]


@given(st.binary(max_size=60))
def test_a_mark_is_parsed_or_refused_and_never_raises(text):
    assert parse_repair_mark(text) is None
    mark = RepairMark(b"t" * 16, True, random.Random(text).randrange(1 << 63), b"h" * 8)
    assert parse_repair_mark(mark.encode()) == mark


def test_an_assigned_id_and_the_text_that_clients_see_are_one_id(form):
    assigned = bytes(range(16))
    messages = [
        (Message(topic="orders", body=b"b"), assigned),
        (Message(topic="orders", id=assigned.hex(), body=b"b"), b""),
    ]
    data = b"".join(encode_record(encode_struct(message), shown) for message, shown in messages)
    one, other = split(form.rows_of_stored(data, 2, 0, 0, SCOPE, KEY))
    record = ForeignRecord(None, b"b", [(ID_HEADER, assigned.hex().encode())], 0)
    (third,) = split(form.rows_of_records(columns([record]), SCOPE, KEY))
    assert one[:2] == other[:2] == third[:2]


def test_rows_of_some_ids_are_picked_in_their_order(form):
    data = b"".join(ROW.pack(each % 3, each, 0, 0, 0) for each in range(9))
    assert [row[1] for row in split(form.holding(data, {0, 2, 7}))] == [0, 2, 3, 5, 6, 8]


def test_rows_are_made_of_what_the_copier_stores(form):
    packed = packing.pack(columns([ForeignRecord(b"k", b"v", (), 5)]), 0, TARGET, 1 << 20)
    record, _ = read_record(packed.data, 0)
    assert decode_struct(Message, record.message).key == "k"
    assert len(form.rows_of_stored(packed.data, 1, 0, 5, SCOPE, KEY)) == ROW_SIZE
