"""Errors of the disk buffer's system calls: each has one answer, and "not stored" is said only when it is true."""

import errno
import os
import shutil

import pytest

from producer_proxy.buffer.disk import dead
from producer_proxy.buffer.disk import store as disk_store
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.errors import BufferError_, BufferFull, BufferUnavailable, BufferUncertain
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import REFUSED_MS
from tests.unit.producer_proxy.buffer.entries import NOW_MS, entry, number_of, numbers
from tests.waiting import until


def opened(path, segment_bytes=1 << 20) -> DiskStore:
    return DiskStore(path, RoomLimits(), lambda: NOW_MS, segment_bytes)


class Failing:
    """Calls of `os` that fail, each by its name; only those whose arguments `when` accepts."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch

    def __call__(self, call, number, when=lambda *arguments: True):
        real = getattr(os, call)

        def fail(*arguments, **named):
            if when(*arguments):
                raise OSError(number, os.strerror(number))
            return real(*arguments, **named)

        self._monkeypatch.setattr(os, call, fail)

    def end(self):
        self._monkeypatch.undo()


@pytest.fixture
def failing(monkeypatch):
    return Failing(monkeypatch)


def is_segment(path, *_) -> bool:
    return str(path).endswith(".buf")


ANSWERS = [
    ("open", errno.EMFILE, is_segment, BufferUnavailable),
    ("open", errno.ENOSPC, is_segment, BufferFull),
    ("open", errno.EIO, is_segment, BufferUnavailable),
    ("pwrite", errno.ENOSPC, lambda *_: True, BufferFull),
    ("pwrite", errno.EDQUOT, lambda *_: True, BufferFull),
    ("pwrite", errno.EIO, lambda *_: True, BufferUnavailable),
    ("fdatasync", errno.EIO, lambda *_: True, BufferUncertain),
    ("fdatasync", errno.ENOSPC, lambda *_: True, BufferUncertain),
    ("fsync", errno.EIO, lambda *_: True, BufferUncertain),
]


@pytest.mark.parametrize("is_first", [True, False], ids=["new segment", "open segment"])
@pytest.mark.parametrize(("call", "number", "when", "answer"), ANSWERS)
def test_a_put_whose_system_call_fails_is_answered_with_the_truth(
    tmp_path, failing, call, number, when, answer, is_first
):
    store = opened(tmp_path)
    if not is_first:
        store.put([entry(1)])
    failing(call, number, when)
    found: BufferError_ | None = None
    try:
        store.put([entry(2)])
    except BufferError_ as error:
        found = error
    failing.end()
    opens_segment = call in ("open", "fsync")
    assert type(found) is (answer if is_first or not opens_segment else type(None))
    says_not_stored = found is not None and "nothing was stored" in str(found)
    assert says_not_stored == isinstance(found, BufferFull | BufferUnavailable)
    if says_not_stored:
        assert not store.ordering_keys.holds("orders", b"new")
        store.put([entry(3)])
    store.close()
    again = opened(tmp_path)
    assert (2 in numbers(again)) is False or not says_not_stored
    if says_not_stored:
        assert numbers(again) == [3] if is_first else [1, 3]
    again.close()


@pytest.mark.parametrize("later", ["stored", "a minute"])
def test_a_full_disk_is_told_until_a_message_is_stored_or_a_minute_has_passed_without_another(tmp_path, failing, later):
    now_ms = NOW_MS
    store = DiskStore(tmp_path, RoomLimits(), lambda: now_ms)
    failing("pwrite", errno.ENOSPC)
    for _ in range(2):
        now_ms += REFUSED_MS - 1
        with pytest.raises(BufferFull):
            store.put([entry(1)])
    now_ms += REFUSED_MS - 1
    assert "No space left" in store.refusal() and store.fault() is None
    if later == "stored":
        failing.end()
        store.put([entry(2)])
    else:
        now_ms += 1
    assert store.refusal() is None
    store.close()


def test_a_write_that_failed_and_cannot_be_cut_off_is_unknown_and_later_puts_are_kept_apart(tmp_path, failing):
    store = opened(tmp_path)
    store.put([entry(1)])
    real = os.pwrite
    whole = []

    def writes_and_fails(file, data, at):
        whole.append(real(file, data, at))
        raise OSError(errno.EIO, "Input/output error")

    failing._monkeypatch.setattr(os, "pwrite", writes_and_fails)
    failing("ftruncate", errno.EIO)
    with pytest.raises(BufferUncertain, match="a part may be stored"):
        store.put([entry(2, size=300)])
    failing.end()
    store.put([entry(3)])
    assert numbers(store) == [1, 3]
    store.close()
    again = opened(tmp_path)
    assert numbers(again) == [1, 2, 3] and again.damaged == 0
    again.close()


@pytest.fixture
def bad_sector(tmp_path, failing, monkeypatch):
    """A store of an entry for each of five topics, of which the third is on a bad sector until `failing.end()`."""
    monkeypatch.setattr(disk_store, "REST_S", 0.001)
    store = opened(tmp_path)
    store.put([entry(number, f"t{number}", size=5000) for number in range(5)])
    bad = range(12_000, 12_512)
    failing("pread", errno.EIO, lambda file, size, at: at < bad.stop and at + size > bad.start)
    yield store
    store.close()


def drained(store) -> list[int]:
    found = []
    while kept := store.take((), 10, 1 << 20):
        found += [int(each.entry.message.split(b":")[0]) for each in kept]
        store.remove(kept)
    return found


def test_an_entry_that_cannot_be_read_waits_with_its_topic_and_costs_no_other(bad_sector, failing):
    assert drained(bad_sector) == [0, 1, 3, 4]
    assert bad_sector.damaged == 0 and bad_sector.room.entries == 1
    failing.end()
    assert until(lambda: drained(bad_sector), "the disk is read again") == [2]


def test_an_entry_that_stays_unreadable_is_reported_as_damaged(bad_sector, tmp_path, monkeypatch):
    monkeypatch.setattr(disk_store, "UNREADABLE_S", 0.0)
    assert drained(bad_sector) == [0, 1, 3, 4]
    until(lambda: not drained(bad_sector) and bad_sector.damaged == 1, "a report")
    assert len(list(tmp_path.glob("*.damaged"))) == 1


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_marks_that_cannot_be_written_are_written_with_the_next_ones(tmp_path, failing, number):
    store = opened(tmp_path)
    store.put([entry(1), entry(2), entry(3)])
    failing("open", number, lambda path, *_: str(path).endswith(".done"))
    store.remove(store.take((), 1, 1 << 20))
    assert numbers(store) == [2, 3] and store.stats().undeleted == 1
    failing.end()
    store.remove(store.take((), 1, 1 << 20))
    assert store.stats().undeleted == 0
    store.close()
    again = opened(tmp_path)
    assert numbers(again) == [3]
    again.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_marks_that_are_never_written_cost_copies_of_a_segment_that_is_not_drained_yet(tmp_path, failing, number):
    store = opened(tmp_path, 2048)
    store.put([entry(1, size=1500)])
    store.put([entry(2, size=1500)])
    store.put([entry(3, size=1500)])
    failing("open", number, lambda path, *_: str(path).endswith(".done"))
    store.remove([kept for kept in store.take((), 10, 1 << 20) if number_of(kept.entry) != 2])
    failing.end()
    assert numbers(store) == [2]
    left = len(list(tmp_path.glob("*.buf")))
    store.close()
    again = opened(tmp_path)
    assert left == 1 and numbers(again) == [1, 2]
    again.close()


def test_a_mark_that_was_cut_short_spoils_no_later_mark(tmp_path, monkeypatch):
    store = opened(tmp_path)
    store.put([entry(number) for number in range(6)])
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:11]))
    store.remove(store.take((), 2, 1 << 20))
    monkeypatch.undo()
    store.remove(store.take((), 2, 1 << 20))
    store.close()
    again = opened(tmp_path)
    assert numbers(again) == [4, 5]
    again.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("call", ["open", "pwrite", "fsync"])
def test_a_dead_letter_that_cannot_be_written_stays_in_the_queue(tmp_path, failing, call, number):
    store = opened(tmp_path)
    store.put([entry(1)])
    failing(call, number, (lambda path, *_: str(path).endswith("dead.buf")) if call == "open" else lambda *_: True)
    with pytest.raises(BufferFull, match="dead-letter list"):
        store.dead_letter(store.take((), 1, 1 << 20), "too large")
    failing.end()
    assert numbers(store) == [1]
    store.dead_letter(store.take((), 1, 1 << 20), "too large")
    assert numbers(store) == [] and store.dead_count >= 1
    store.close()


def test_the_name_of_a_new_dead_letter_list_is_synced_with_its_first_entry(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), real(file))[1])
    letters = dead.DeadList(tmp_path)
    letters.append([dead.DeadEntry(1, "odd", entry(1))])
    assert synced == [str(tmp_path / "dead.buf"), str(tmp_path)]
    letters.append([dead.DeadEntry(1, "odd", entry(2))])
    assert synced[2:] == [str(tmp_path / "dead.buf")] and letters.count == 2


@pytest.mark.parametrize("change", ["removed", "moved", "replaced"])
def test_a_directory_that_goes_away_ends_the_storing_and_what_is_waiting_is_drained(tmp_path, change):
    store = opened(tmp_path / "buffer")
    store.put([entry(1)])
    if change == "removed":
        shutil.rmtree(tmp_path / "buffer")
    else:
        (tmp_path / "buffer").rename(tmp_path / "moved")
    if change == "replaced":
        shutil.copytree(tmp_path / "moved", tmp_path / "buffer")
    with pytest.raises(BufferUncertain, match="takes nothing until restarted"):
        store.put([entry(2)])
    with pytest.raises(BufferUnavailable, match="takes nothing until restarted"):
        store.put([entry(3)])
    assert numbers(store) == [1]
    store.close()
