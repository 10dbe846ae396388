"""Many entries from a store's bytes at once: the native form and its twin answer alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_proxy.buffer import blocks as block_format
from producer_proxy.buffer import entries as entries_pure
from producer_proxy.buffer import native as chosen
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.value import pack_value
from tests.unit.producer_proxy.buffer.entries import entry

START = 5_000_000_000 * 8
FORMS = [pytest.param(entries_pure, id="pure"), pytest.param(chosen, id="native")]

texts = st.binary(max_size=60)
some_entries = st.builds(
    BufferEntry, st.text("abc.-", min_size=1, max_size=20), st.none() | texts, st.none() | st.binary(min_size=16, max_size=16),
    texts, st.integers(0, (1 << 48) - 1),
)  # fmt: skip


@pytest.fixture(params=FORMS)
def form(request):
    if request.param is chosen and not chosen.NATIVE:
        pytest.skip("native modules are not built")
    return request.param


def blocks(entries) -> tuple[bytes, list[int]]:
    """Of a segment from START on, and their positions."""
    data, positions = b"", []
    for each in entries:
        positions.append(START + len(data))
        data += block_format.pack_block(block_format.ENTRY, START + len(data), each.encode())
    return data, positions


def test_entries_are_given_until_the_bytes_end_in_the_middle_of_one(form):
    wanted = [entry(n) for n in range(5)]
    data, positions = blocks(wanted)
    found, used = form.entries_at(data[: positions[3] - START + 20], START, positions, 1 << 20)
    assert found == wanted[:3] and used == sum(each.size_bytes for each in found)
    assert isinstance(found[0], BufferEntry)
    assert form.entries_at(data, START, [positions[1], positions[4]], 1 << 20)[0] == [wanted[1], wanted[4]]
    assert form.entries_at(data, START, [START - 8, *positions], 1 << 20) == ([], 0)


def test_entries_are_given_up_to_so_many_bytes_and_one_at_least(form):
    data, positions = blocks([entry(n, size=100) for n in range(5)])
    size = entry(0, size=100).size_bytes
    for room, count in ((1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (99 * size, 5)):
        assert len(form.entries_at(data, START, positions, room)[0]) == count


def test_a_flipped_bit_ends_a_stretch_before_its_entry(form):
    data, positions = blocks([entry(n) for n in range(3)])
    for at in range(positions[1] - START, positions[1] - START + 16 + entry(1).size_bytes):
        bad = bytearray(data)
        bad[at] ^= 1 << at % 8
        assert form.entries_at(bytes(bad), START, positions, 1 << 20)[0] == [entry(0)]


def test_a_value_that_is_not_ours_is_none_and_stands_in_nobodys_way(form):
    good = pack_value(entry(1))
    odd = [b"", b"PB1", b"XX1" + good[3:], good[:-1], good[:20] + b"?" + good[21:], b"PB1\x00\x00\x00\x00"]
    assert form.entries_of([good, *odd, good]) == [entry(1), *[None] * len(odd), entry(1)]


@given(st.lists(some_entries, max_size=6), st.binary(max_size=60), st.integers(0, 500))
def test_both_forms_make_the_same_of_any_bytes(given_entries, noise, cut):
    data, positions = blocks(given_entries)
    data = (data + noise)[: cut + len(noise)]
    positions.append(START + len(data) // 16 * 8)
    values = [*map(pack_value, given_entries), noise, data]
    assert chosen.entries_at(data, START, positions, 300) == entries_pure.entries_at(data, START, positions, 300)
    assert chosen.entries_of(values) == entries_pure.entries_of(values)


@given(st.lists(st.integers(0, (1 << 32) - 1), max_size=20), st.integers(0, 1 << 62))
def test_both_forms_write_the_marks_that_are_read_again(offsets, base):
    marks = chosen.marks_of(base, offsets)
    assert marks == entries_pure.marks_of(base, offsets)
    assert block_format.done_offsets(marks, base) == set(offsets)
