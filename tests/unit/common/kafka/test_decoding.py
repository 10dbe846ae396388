"""Decoding of fetched record batches, in both forms, against batches that are written here and kafka-python's decoder."""

import gzip
import struct
from bisect import bisect_left

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.kafka import decoding, native
from common.kafka.decoding import AbortedTransaction, MalformedBatch
from tests.unit.common.kafka.record_batches import (
    APPEND_TIME,
    CONTROL,
    TRANSACTIONAL,
    WrittenBatch,
    WrittenRecord,
    end_of_transaction,
    number,
    record,
    sealed,
    text,
    written_batches,
)

patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FORMS = [decoding, native] if native.NATIVE else [decoding]
PLAIN = WrittenRecord(0, 0, b"k", b"v", [(b"a", b"1"), (b"a", None)])


@pytest.fixture(params=FORMS, ids=lambda form: form.__name__)
def form(request):
    return request.param


def decompress(codec, data):
    if codec != 1:
        raise MalformedBatch(f"codec {codec}")
    try:
        return gzip.decompress(data)
    except Exception as fault:
        raise MalformedBatch(str(fault)) from fault


def opened(form, data, first=0, committed_only=True, aborted=()):
    return form.BatchDecoder(data, first, committed_only, aborted, decompress)


def rows_of(columns):
    offsets, timestamps, keys, values, headers = columns
    return [*zip(offsets, timestamps, keys, values, map(list, headers), strict=True)]


def everything(form, data, step=3, **options):
    """(rows, next offset after them, sentence of the fault)."""
    decoder, rows = opened(form, data, **options), []
    try:
        while not decoder.is_done:
            rows += rows_of(decoder.take(step))
    except MalformedBatch as fault:
        return rows, decoder.next_offset, str(fault)
    return rows, decoder.next_offset, ""


def one(*records, **fields):
    placed = [each._replace(delta=number) for number, each in enumerate(records)]
    return WrittenBatch(10, placed, max(0, len(placed) - 1), **fields)


@patient
@given(written_batches(), st.integers(1, 20))
def test_records_are_found_as_they_were_written(batches, step):
    data = b"".join(each.encode() for each in batches)
    wanted = [row for each in batches for row in each.rows()]
    ends = batches[-1].base + batches[-1].last_delta + 1 if batches else 0
    for form in FORMS:
        assert everything(form, data, step) == (wanted, ends, "")


@patient
@given(written_batches())
def test_kafka_pythons_own_decoder_finds_the_same(batches):
    records = pytest.importorskip("kafka.record")
    found = []
    for batch in records.MemoryRecords(b"".join(each.encode() for each in batches)):
        try:
            found += [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in batch]
        except UnicodeDecodeError:
            return
        except Exception as fault:  # it takes names in UTF-8 only
            assert "utf-8" in str(fault)
            return
    assert everything(native, b"".join(each.encode() for each in batches))[0] == found


@patient
@given(written_batches(), st.data())
def test_reading_begins_at_its_offset_and_a_batch_that_is_cut_off_is_left_for_the_next_fetch(batches, data):
    encoded = [each.encode() for each in batches]
    cut = data.draw(st.integers(0, len(encoded[-1]) - 1)) if encoded else 0
    rows = [row for each in batches[:-1] for row in each.rows()]
    first = data.draw(st.sampled_from([row[0] for row in rows] + [row[0] + 1 for row in rows] or [0]))
    for form in FORMS:
        found = everything(form, b"".join(encoded[:-1]) + encoded[-1][:cut] if encoded else b"", first=first)
        assert found[::2] == ([row for row in rows if row[0] >= first], "")


@patient
@given(written_batches(), st.data())
def test_damaged_bytes_are_told_alike_by_both_forms_and_never_read_past_their_end(batches, data):
    """With a checksum that fits, so that the damage is met behind it; and without."""
    encoded = [bytearray(each.encode()) for each in batches]
    if not encoded:
        return
    at = data.draw(st.integers(0, len(encoded) - 1))
    batch = encoded[at]
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        batch[17:21] = struct.pack(">I", decoding.google_crc32c.value(bytes(batch[21:])))
    damaged = b"".join(encoded)
    found = [everything(form, damaged) for form in FORMS]
    assert found == found[:1] * len(FORMS)


@patient
@given(st.binary(max_size=200))
def test_any_bytes_behind_a_right_checksum_are_told_alike_by_both_forms(records):
    batch = WrittenBatch(10, [], 3)
    for count in (1, 2, 1 << 30):
        found = [everything(form, sealed(batch, records, count)) for form in FORMS]
        assert found == found[:1] * len(FORMS)


@pytest.mark.parametrize(
    ("records", "count", "told"),
    [
        (b"", 1, "1 records in 0 bytes"),
        (record(PLAIN) + b"x", 1, "1 bytes after its last record"),
        (record(PLAIN) * 2, 2, "offset 10 after 10"),
        (record(PLAIN._replace(delta=5)), 1, "offset 15 after -1"),
        (number(99) + record(PLAIN), 1, "a record of 99 bytes"),
        (b"\xff" * 20, 1, "a number that is cut off or too long"),
        (number(7) + b"\0\0\0" + text(b"k") + number(9) + b"\0", 1, "9 bytes where fewer are left"),
        (number(6) + b"\0\0\0\1\1" + number(-3), 1, "a record with -3 headers"),
        (number(8) + b"\0\0\0\1\1" + number(1) + number(-1) + b"\0", 1, "a header without a name"),
        (number(7) + b"\0\0\0\1\1\0\0", 1, "1 bytes after a record's headers"),
    ],
)
def test_what_is_malformed_is_told_with_the_batch(form, records, count, told):
    rows, _, sentence = everything(form, sealed(WrittenBatch(10, [], 2), records, count))
    assert (rows, sentence) == ([], f"the record batch at offset 10: {told}")


def test_a_wrong_checksum_is_told_after_the_records_before_it_and_at_each_further_call(form):
    damaged = bytearray(one(PLAIN, PLAIN)._replace(base=20).encode())
    damaged[-1] ^= 1
    decoder = opened(form, one(PLAIN).encode() + bytes(damaged))
    assert [row[0] for row in rows_of(decoder.take(100))] == [10]
    assert decoder.next_offset == 11 and not decoder.is_done
    for _ in range(2):
        with pytest.raises(MalformedBatch, match=r"^the record batch at offset 20: its checksum is wrong$"):
            decoder.take(100)


def test_a_batch_of_an_older_format_ends_the_decoding_before_it(form):
    old = struct.pack(">qiIbbq", 11, 20, 0, 1, 0, 0) + b"\xff" * 6
    decoder = opened(form, one(PLAIN).encode() + old)
    assert [row[0] for row in rows_of(decoder.take(9))] == [10]
    assert (decoder.is_done, decoder.next_offset) == (True, 11)


def transactional(base, producer, *values):
    records = [WrittenRecord(delta, 0, None, value, []) for delta, value in enumerate(values)]
    return WrittenBatch(base, records, len(records) - 1, attributes=TRANSACTIONAL, producer=producer)


LOG = [
    transactional(0, 7, b"aborted", b"aborted"),
    transactional(2, 8, b"committed"),
    WrittenBatch(3, [PLAIN._replace(value=b"plain")], 0, producer=7),
    end_of_transaction(4, 7, is_commit=False),
    transactional(5, 7, b"committed later"),
    end_of_transaction(6, 8, is_commit=True),
    end_of_transaction(7, 7, is_commit=True),
]


def test_readers_of_committed_records_skip_aborted_ones_and_control_records(form):
    data = b"".join(each.encode() for each in LOG)
    rows, following, _ = everything(form, data, aborted=[AbortedTransaction(7, 0)])
    assert [(row[0], row[3]) for row in rows] == [(2, b"committed"), (3, b"plain"), (5, b"committed later")]
    assert following == 8
    rows, _, _ = everything(form, data, aborted=[AbortedTransaction(7, 0)], committed_only=False)
    assert [row[0] for row in rows] == [0, 1, 2, 3, 5]


def test_a_fetch_without_a_record_moves_the_position(form):
    decoder = opened(form, end_of_transaction(4, 7, is_commit=True).encode(), first=4)
    assert rows_of(decoder.take(5)) == []
    assert (decoder.is_done, decoder.next_offset) == (True, 5)


def test_a_control_batch_that_compaction_has_emptied_aborts_nothing(form):
    emptied = WrittenBatch(4, [], 0, attributes=TRANSACTIONAL | CONTROL, producer=7)
    data = b"".join(each.encode() for each in (LOG[0], emptied, transactional(5, 7, b"x")))
    rows, following, sentence = everything(form, data, aborted=[AbortedTransaction(7, 0)])
    assert (rows, following, sentence) == ([], 6, "")


def test_the_leaders_epoch_is_that_of_the_last_batch(form):
    decoder = opened(form, one(PLAIN, epoch=5).encode() + one(PLAIN, epoch=6)._replace(base=20).encode())
    assert decoder.leader_epoch == -1
    decoder.take(1)
    assert decoder.leader_epoch == 5
    decoder.take(1)
    assert decoder.leader_epoch == 6


def test_columns_are_sequences(form):
    offsets, timestamps, keys, values, _ = opened(form, one(PLAIN, PLAIN, PLAIN, attributes=APPEND_TIME).encode()).take(
        9
    )
    assert [len(offsets), offsets[0], offsets[-1], bool(offsets)] == [3, 10, 12, True]
    assert bisect_left(offsets, 11) == 1 and [*offsets[1:]] == [11, 12] and [*offsets[1:][1:]] == [12]
    assert offsets.index(11) == 1 and offsets.count(11) == 1 and offsets.count(9) == 0 and 12 in offsets
    assert [*values] == [b"v"] * 3 and [*keys[:2]] == [b"k"] * 2 and set(timestamps) == {1_700_000_000_999}
    with pytest.raises(IndexError):
        offsets[3]
