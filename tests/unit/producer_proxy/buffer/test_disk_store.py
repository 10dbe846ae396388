"""The disk buffer's files: what survives a restart, and what damage of any kind does."""

import os
import struct
import threading

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_proxy.buffer import blocks
from producer_proxy.buffer.blocks import Block
from producer_proxy.buffer.disk import dead
from producer_proxy.buffer.disk.segment import BufferSegment
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.entry import BufferEntry, EntryError, decode
from producer_proxy.buffer.errors import BufferFull, BufferInUse, BufferUnavailable, BufferUncertain
from producer_proxy.buffer.room import RoomLimits
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.buffer.entries import NOW_MS, entry, number_of, numbers


def opened(path, segment_bytes=4096) -> DiskStore:
    return DiskStore(path, RoomLimits(), lambda: NOW_MS, segment_bytes)


def reopened(store: DiskStore, path) -> DiskStore:
    store.close()
    return opened(path)


def files(path, suffix) -> list:
    return sorted(path.glob(f"*{suffix}"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "buffer"


def test_a_restart_finds_what_was_put_and_not_what_was_removed(path):
    store = opened(path)
    for n in range(100):
        store.put([entry(n, key=b"%d" % (n % 7), size=200)])
    store.remove(store.take((), 30, 1 << 20))
    store = reopened(store, path)
    assert numbers(store) == list(range(30, 100))
    assert store.ordering_keys.holds("orders", b"3") and store.stats().entries == 70
    kept = store.take((), 100, 1 << 20)
    store.remove([each for each in kept if number_of(each.entry) % 2])
    store = reopened(store, path)
    assert numbers(store) == list(range(30, 100, 2))
    store.close()


def test_a_drained_buffer_leaves_no_files_but_its_lock(path):
    store = opened(path)
    for n in range(100):
        store.put([entry(n, size=200)])
    assert len(files(path, ".buf")) > 3
    store.remove(store.take((), 100, 1 << 20))
    assert [each.name for each in path.iterdir()] == ["lock"]
    store.put([entry(1)])
    assert numbers(reopened(store, path)) == [1]


def test_a_directory_has_one_holder(path):
    store = opened(path)
    with pytest.raises(BufferInUse, match="another process holds it"):
        opened(path)
    store.close()


@pytest.mark.parametrize("how", ["cut short", "zeros", "garbage"])
def test_a_torn_tail_is_passed_over_and_loses_nothing_before_it(path, how, caplog):
    store = opened(path, 1 << 20)
    store.put([entry(n) for n in range(5)])
    store.close()
    (segment,) = files(path, ".buf")
    data = segment.read_bytes()
    torn = blocks.pack_block(blocks.ENTRY, len(data), entry(9).encode())
    segment.write_bytes(data + {"cut short": torn[:50], "zeros": bytes(64), "garbage": os.urandom(40)}[how])
    store = opened(path)
    assert numbers(store) == [0, 1, 2, 3, 4] and store.damaged == 0
    assert "is torn" in caplog.text
    store.put([entry(6)])
    assert numbers(reopened(store, path)) == [0, 1, 2, 3, 4, 6]


def test_a_flipped_bit_anywhere_costs_at_most_its_entry_and_is_reported(path):
    store = opened(path, 1 << 20)
    store.put([entry(n) for n in range(5)])
    store.close()
    (segment,) = files(path, ".buf")
    good = segment.read_bytes()
    marks = [at for at in range(blocks.SEGMENT_HEAD.size, len(good)) if any(good[at - at % 8 : at + 8 - at % 8])]
    for at in marks[::3]:
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        segment.write_bytes(bad)
        store = opened(path)
        found = numbers(store)
        assert len(found) >= 4 and found == sorted(found) and set(found) <= set(range(5))
        if len(found) == 4 and 4 in found:
            assert store.damaged == 1
        store.close()


def test_an_entry_that_rots_after_it_was_accepted_is_reported_and_holds_up_nobody(path, caplog):
    store = opened(path, 1 << 20)
    store.put([entry(n, f"t{n}") for n in range(4)])
    (segment,) = files(path, ".buf")
    with segment.open("r+b") as file:
        at = segment.read_bytes().index(b"1:xxx")
        file.seek(at + 5)
        file.write(b"y")
    for expected in ([0], [2, 3]):
        kept = store.take((), 10, 1 << 20)
        assert [int(each.entry.message.split(b":")[0]) for each in kept] == expected
        store.remove(kept)
    assert store.damaged == 1 and "damaged" in caplog.text
    assert len(files(path, ".damaged")) == 1
    store.close()


def test_damaged_marks_cost_a_copy_and_never_an_entry(path):
    store = opened(path, 1 << 20)
    store.put([entry(n) for n in range(6)])
    store.remove(store.take((), 3, 1 << 20))
    store.close()
    (marks,) = files(path, ".done")
    bad = bytearray(marks.read_bytes())
    bad[9] ^= 4
    marks.write_bytes(bad + b"\x01\x02")
    store = opened(path)
    assert numbers(store) == [1, 3, 4, 5]
    store.close()


def test_marks_without_their_segment_do_not_touch_a_later_segment_of_that_name(path):
    store = opened(path)
    store.put([entry(1)])
    store.remove(store.take((), 1, 1 << 20))
    store.close()
    (path / f"{0:020d}.done").write_bytes(blocks.pack_done(16, 16))
    store = opened(path)
    store.put([entry(2)])
    assert numbers(reopened(store, path)) == [2]


def test_a_full_disk_is_a_refusal_that_leaves_no_part(path, monkeypatch):
    store = opened(path, 1 << 20)
    store.put([entry(1)])
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real(file, data[:7], at) if len(data) > 7 else 0)
    with pytest.raises(BufferFull, match="nothing was stored"):
        store.put([entry(2, key=b"other")])
    monkeypatch.setattr(os, "pwrite", real)
    assert not store.ordering_keys.holds("orders", b"other")
    store.put([entry(3)])
    assert numbers(reopened(store, path)) == [1, 3]


def test_after_a_failed_sync_nothing_is_promised_any_more_and_what_was_still_drains(path, monkeypatch):
    store = opened(path)
    store.put([entry(1)])

    def fails(segment):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(BufferSegment, "sync", fails)
    with pytest.raises(BufferUncertain):
        store.put([entry(2)])
    monkeypatch.undo()
    with pytest.raises(BufferUnavailable, match="a sync failed"):
        store.put([entry(3)])
    assert store.stats().fault and numbers(store) == [1]
    store.remove(store.take((), 5, 1 << 20))
    store.close()


def test_puts_of_many_greenlets_share_syncs_and_none_returns_before_its_own(path, monkeypatch):
    store = opened(path, 1 << 20)
    synced, real = [], BufferSegment.sync
    monkeypatch.setattr(BufferSegment, "sync", lambda segment: (synced.append(segment.size), real(segment)))
    waiting = [gevent.spawn(store.put, [entry(n)]) for n in range(200)]
    gevent.joinall(waiting, raise_error=True)
    assert len(synced) < 20 and synced[-1] == os.path.getsize(files(path, ".buf")[0])
    assert numbers(store) == list(range(200))
    store.close()


def test_a_store_closes_only_after_the_file_work_of_a_greenlet_that_was_killed(path, monkeypatch):
    store = opened(path)
    store.put([entry(1), entry(2)])
    begun, go_on, real = threading.Event(), threading.Event(), BufferSegment.mark_done

    def slow(segment, offsets):
        begun.set()
        go_on.wait(10)
        real(segment, offsets)

    monkeypatch.setattr(BufferSegment, "mark_done", slow)
    drain = gevent.spawn(store.remove, store.take((), 1, 1 << 20))
    wait_until(begun.is_set)
    drain.kill()
    gevent.spawn_later(0.01, go_on.set)
    assert numbers(reopened(store, path)) == [2]


def test_the_dead_letter_list_keeps_the_entry_and_the_reason(path):
    store = opened(path)
    store.put([entry(1), entry(2)])
    store.dead_letter(store.take((), 1, 1 << 20), "too large")
    store.dead_letter(store.take((), 1, 1 << 20), "odd")
    assert [(each.reason, each.entry) for each in dead.read(path)] == [("too large", entry(1)), ("odd", entry(2))]
    store = reopened(store, path)
    assert store.stats().dead == 2 and numbers(store) == []
    store.close()


def test_a_full_dead_letter_list_keeps_the_entry_in_the_queue(path, monkeypatch):
    monkeypatch.setattr(dead, "BYTES_MAX", 100)
    store = opened(path)
    store.put([entry(1)])
    with pytest.raises(BufferFull, match="dead-letter list"):
        store.dead_letter(store.take((), 1, 1 << 20), "too large")
    assert numbers(store) == [1]
    store.close()


texts = st.binary(max_size=60)
entries = st.builds(
    BufferEntry, st.text("abc.-", min_size=1, max_size=20), st.none() | texts, st.none() | st.binary(min_size=16, max_size=16),
    texts, st.integers(0, (1 << 48) - 1),
)  # fmt: skip


@given(entries)
def test_every_entry_is_decoded_as_it_was(given_entry):
    assert decode(given_entry.encode()) == given_entry
    assert given_entry.size_bytes == len(given_entry.encode())


@given(st.binary(max_size=80))
def test_other_bytes_are_an_entry_or_an_error(data):
    try:
        assert isinstance(decode(data), BufferEntry)
    except EntryError:
        pass


@given(st.lists(texts, max_size=8), st.binary(max_size=100), st.data())
def test_whatever_lies_between_good_blocks_they_are_found(payloads, noise, data):
    """Noise instead of one of them: the others stay."""
    base, out, places = 4096, b"H" * blocks.SEGMENT_HEAD.size, []
    hole = data.draw(st.integers(0, len(payloads)))
    for number, payload in enumerate(payloads):
        if number == hole:
            out += noise + bytes(-len(noise) % 8)
        places.append(len(out))
        out += blocks.pack_block(blocks.ENTRY, base + len(out), payload)
    found = [(each.offset, each.payload) for each in blocks.blocks(out, base) if isinstance(each, Block)]
    assert found == list(zip(places, payloads, strict=True))


def test_a_block_that_was_copied_elsewhere_is_none():
    block = blocks.pack_block(blocks.ENTRY, 64, b"payload")
    assert blocks.block_at(block, 0, 64) is not None
    assert blocks.block_at(block, 0, 72) is None
    assert blocks.block_at(struct.pack("<I", 1) + block[4:], 0, 64) is None
