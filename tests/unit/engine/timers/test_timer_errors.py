"""Delayed messages when the device, its space or the process refuses: nothing comes twice, nothing is lost untold."""

import errno

import pytest

from engine.errors import DiskFullError, PartlyWrittenError, TimersReturnedError
from engine.link.codes import DISK_FULL, OK
from engine.timers import recovery as timer_recovery
from engine.timers import timer_store
from tests.unit.engine.timers.rig import Rig

DAY_MS = 86_400_000


@pytest.fixture
def rig() -> Rig:
    return Rig()


class OneBadSector:
    """A file of which one address cannot be read."""

    def __init__(self, file, bad):
        self._file, self._bad = file, bad

    def read_at(self, size, start):
        if start <= self._bad < start + size:
            raise OSError(errno.EIO, "Input/output error")
        return self._file.read_at(size, start)


def restart_on_a_bad_sector(rig: Rig, monkeypatch, at: int) -> None:
    """Restart while the disk cannot read the address `at` of the timers' segment."""
    load = timer_recovery.load
    with monkeypatch.context() as patch:
        patch.setattr(
            timer_recovery,
            "load",
            lambda table, source, file, *rest: load(table, source, OneBadSector(file, at), *rest),
        )
        rig.restart()


def test_a_disk_without_room_delays_and_loses_nothing(rig):
    rig.add("a", rig.now_ms + 10)
    rig.log.writer.refusal.refuse("full")
    rig.env.clock_ms += 10
    assert rig.timers.step() > 0
    assert rig.fired() == []
    rig.log.writer.refusal.refuse("")
    rig.advance(1000)
    assert rig.fired() == ["a"]


@pytest.mark.parametrize("part", ["file_of", "queue_count", "put_fired_from", "append"])
def test_due_messages_wait_in_the_table_while_the_process_or_its_store_refuses_to_work(rig, part, monkeypatch):
    for number in range(10):
        rig.add(str(number), rig.now_ms + 1000 + number)
    rig.sync()

    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(rig.timers._log, part, refuse)
    rig.env.clock_ms += 5000
    with pytest.raises(OSError, match="Too many"):
        rig.timers.step()
    assert (len(rig.timers.table), rig.timers.counts.lost) == (10, 0)
    monkeypatch.undo()
    rig.advance(0)
    assert sorted(rig.fired(), key=int) == [str(number) for number in range(10)]


def test_an_append_that_fails_in_the_middle_ends_the_process(rig, monkeypatch):
    rig.add("a", rig.now_ms + 10)
    sound = rig.timers._log.append

    def append(batches, count):
        sound(batches, count)
        raise RuntimeError("the store is damaged")

    monkeypatch.setattr(rig.timers._log, "append", append)
    rig.env.clock_ms += 10
    with pytest.raises(PartlyWrittenError):
        rig.timers.step()
    rig.kill()
    rig.advance(1000)
    assert rig.fired() == ["a"]


@pytest.mark.parametrize("room", [1, 2, 100])
def test_each_message_of_a_request_is_either_stored_or_answered_as_not_stored(rig, room):
    timers = [rig.timer(f"t{number}", rig.now_ms + 5000, body=bytes(1500) + b"\0").pack() for number in range(12)]
    refuse_appends(rig, after=room)
    answers = rig.timers.add(b"".join(timers), len(timers))
    stored = [f"t{number}" for number, answer in enumerate(answers) if answer.code == OK]
    assert {answer.code for answer in answers} <= {OK, DISK_FULL}
    assert (len(stored) == 12) == (room == 100) and len(rig.timers.table) == len(stored) == rig.timers.counts.added
    rig.kill()
    assert len(rig.timers.table) == len(stored), "what was answered as not stored must not be in the log"
    rig.advance(6000)
    assert sorted(rig.fired()) == sorted(stored)


def refuse_appends(rig, after: int) -> None:
    """The disk has room for so many more batches."""
    sound, left = rig.timers._log.append, [after]

    def append(batches, count):
        left[0] -= 1
        return sound(batches, count) if left[0] >= 0 else [(DISK_FULL, 0)] * count

    rig.timers._log.append = append


def test_a_relocation_that_a_full_disk_ends_leaves_no_second_copy(rig):
    for number in range(12):
        rig.add(f"t{number}", rig.now_ms + DAY_MS, body=bytes(1500) + b"\0")
    while rig.log.for_timers.active_base == 0:
        rig.fill()
    refuse_appends(rig, after=1)
    with pytest.raises(DiskFullError):
        for _ in rig.timers.relocate(0):
            rig.sync()
    rig.timers._log.append = type(rig.timers._log).append.__get__(rig.timers._log)
    rig.advance(DAY_MS)
    rig.advance(1000)
    assert sorted(rig.fired()) == sorted(f"t{number}" for number in range(12))
    rig.kill()
    rig.advance(1000)
    assert len(rig.fired()) == 12, "a copy that nothing replaced came back"


def test_a_relocation_that_is_given_up_leaves_no_second_copy(rig, monkeypatch):
    rig.add("a", rig.now_ms + DAY_MS)
    while rig.log.for_timers.active_base == 0:
        rig.fill()
    moving = rig.timers.relocate(0)
    monkeypatch.setattr(rig.timers._log, "when_durable", lambda position, callback: None)
    next(moving)
    moving.close()
    monkeypatch.undo()
    rig.advance(DAY_MS)
    rig.advance(1000)
    rig.kill()
    rig.advance(1000)
    assert rig.fired() == ["a"]


def test_a_bad_sector_keeps_its_segment_for_a_minute_and_then_its_message_is_lost_with_it(rig, monkeypatch):
    for name in ("bad", "good"):
        rig.add(name, rig.now_ms + DAY_MS)
    while rig.log.for_timers.active_base == 0:
        rig.fill()
    bad_at = rig.timers.table.scan(0, 100)[0][0][1]
    sound = type(rig.timers._log).read_at

    def read_at(self, base, at, size):
        if (base, at) == (0, bad_at):
            raise OSError(errno.EIO, "Input/output error")
        return sound(self, base, at, size)

    monkeypatch.setattr(type(rig.timers._log), "read_at", read_at)
    for _ in range(2):
        with pytest.raises(OSError, match="cannot be read now"):
            for _ in rig.timers.relocate(0):
                rig.sync()
        assert (rig.timers.table.pending_in(0), rig.timers.counts.carried, rig.timers.counts.lost) == (1, 1, 0)
        rig.env.clock_ms += 30_000
    for _ in rig.timers.relocate(0):
        rig.sync()
    rig.timers.forget(0)
    assert (len(rig.timers.table), rig.timers.counts.lost) == (1, 1)


def test_timers_of_a_segment_stay_while_its_marks_cannot_be_read(rig, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "the view cannot be read")

    rig.add("a", rig.now_ms + DAY_MS)
    with monkeypatch.context() as patch:
        patch.setattr(type(rig.timers._log), "forget", refuse)
        with pytest.raises(OSError, match="the view"):
            rig.timers.forget(0)
    assert (rig.timers.table.pending_in(0), rig.timers.counts.lost) == (1, 0)


def test_a_segment_that_a_start_could_not_read_stays_for_the_next_start_if_the_disk_reads_it_again(rig, monkeypatch):
    for name in "ab":
        rig.add(name, rig.now_ms + DAY_MS)
    ((_, at, *_), *_) = sorted(rig.timers.table.scan(0, 100)[0])
    while rig.log.for_timers.active_base == 0:
        rig.fill()
    restart_on_a_bad_sector(rig, monkeypatch, at)
    assert len(rig.timers.table) == 1
    for why in ("cannot be read now", "the next start does", "cannot be read now"):
        with pytest.raises(OSError, match=why):
            for _ in rig.timers.relocate(0):
                rig.sync()
        rig.env.clock_ms += 60_000 if why != "the next start does" else 59_000
    rig.restart()
    for _ in rig.timers.relocate(0):
        rig.sync()
    rig.timers.forget(0)
    rig.advance(DAY_MS)
    rig.advance(1000)
    assert sorted(rig.fired()) == ["a", "b"]


def test_an_engine_starts_again_by_itself_once_the_disk_reads_what_its_start_could_not(rig, monkeypatch):
    rig.add("hidden", rig.now_ms + 1000)
    ((_, at, *_),) = rig.timers.table.scan(0, 100)[0]
    restart_on_a_bad_sector(rig, monkeypatch, at)
    look_ms = rig.timers.next_ms()
    assert look_ms == 60_000
    with monkeypatch.context() as patch:  # the first look finds the sector as the start did
        load = timer_store.load
        patch.setattr(
            timer_store, "load", lambda table, source, file, *rest: load(table, source, OneBadSector(file, at), *rest)
        )
        rig.env.clock_ms += look_ms
        assert rig.timers.step() == 120_000
    rig.env.clock_ms += 119_999
    assert rig.timers.step() == 1
    rig.env.clock_ms += 1
    with pytest.raises(TimersReturnedError):
        rig.timers.step()
    rig.kill()
    assert rig.timers.next_ms() == 0
    rig.run()
    assert rig.fired() == ["hidden"]


def test_what_the_disk_does_not_give_holds_up_nothing_and_comes_when_it_does(rig, monkeypatch):
    rig.add("bad", rig.now_ms + 10)
    ((base, at, *_),) = rig.timers.table.scan(0, 100)[0]
    rig.add("good", rig.now_ms + 10)
    file, sound = rig.log.for_timers.file_of(base), type(rig.log.for_timers.file_of(base)).read_at

    def read_at(self, size, where):
        if where <= at < where + size and self is file:
            failed.append(where)
            raise OSError(5, "Input/output error")
        return sound(self, size, where)

    failed = []
    monkeypatch.setattr(type(file), "read_at", read_at)
    tried = []
    for _ in range(200):
        reads = len(failed)
        rig.advance(1000)
        tried += [1] if len(failed) > reads else []
    monkeypatch.undo()
    assert rig.fired() == ["good"]
    assert 5 <= len(tried) <= 8  # after 0, 4, 12, 28, 60, 120 and 180 seconds
    rig.advance(60_000)
    assert rig.fired() == ["good", "bad"]


def test_a_damaged_message_is_lost_alone_and_counted(rig):
    for name in "abc":
        rig.add(name, rig.now_ms + 10)
    base, at, *_ = sorted(rig.timers.table.scan(0, 100)[0])[1]
    file = rig.log.for_timers.file_of(base)
    file.write_at(b"\xff", at + 40)
    rig.advance(10)
    assert (rig.fired(), rig.timers.counts.lost, len(rig.timers.table)) == (["a", "c"], 1, 0)


def test_a_sector_that_a_start_cannot_read_costs_its_own_messages_and_only_until_it_is_read(rig, monkeypatch, caplog):
    for name in "abc":
        rig.add(name, rig.now_ms + 1000)
    _, at, *_ = sorted(rig.timers.table.scan(0, 100)[0])[1]
    restart_on_a_bad_sector(rig, monkeypatch, at)
    assert "cannot be read" in caplog.text
    rig.advance(1000)
    assert rig.fired() == ["a", "c"]
    for _ in range(60):
        rig.fill()
    rig.run()
    rig.restart()
    rig.run()
    assert sorted(rig.fired()) == ["a", "b", "c"]


def test_a_message_that_may_have_been_sent_is_not_sent_again_when_a_start_cannot_read_its_record(rig, monkeypatch):
    rig.add("a", rig.now_ms + 10)
    rig.env.clock_ms += 10
    rig.timers.step()  # the tombstone waits for a sync
    assert rig.fired() == ["a"]

    def refuse(store, address):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(timer_recovery.TimerStore, "read", refuse)
        rig.kill()
    assert rig.timers.are_missing
    rig.add("b", rig.now_ms + 10)  # its tombstone must not hide the sent message of the other one from the next start
    rig.advance(10)
    for _ in range(60):
        rig.fill()
    rig.advance(1000)
    rig.restart()
    assert not rig.timers.are_missing
    rig.run()
    assert sorted(rig.fired()) == ["a", "b"]


def test_a_start_waits_for_a_sector_that_the_disk_reads_again_within_a_minute(rig, monkeypatch):
    rig.add("a", rig.now_ms + 1000)
    ((_, at, *_),) = rig.timers.table.scan(0, 100)[0]
    reads, began_ms = timer_recovery.PatientReads, rig.env.clock_ms

    class Healing(OneBadSector):
        def read_at(self, size, start):
            return (super() if rig.env.clock_ms - began_ms < 20_000 else self._file).read_at(size, start)

    monkeypatch.setattr(timer_recovery, "PatientReads", lambda file, patience: reads(Healing(file, at), patience))
    rig.restart()
    assert rig.env.clock_ms - began_ms == 31_000 and not rig.timers.are_missing
    rig.run()
    assert rig.fired() == ["a"]


def test_a_segment_that_a_start_has_read_in_part_is_read_again_though_all_timers_that_are_known_have_ended(rig):
    rig.log.checkpoint()  # so that the topic is known without its record
    rig.add("hidden", rig.now_ms + DAY_MS)
    ((_, hidden_at, *_),) = rig.timers.table.scan(0, 100)[0]
    for _ in range(4):
        rig.fill()
    rig.add("known", rig.now_ms + 10_000)

    def refuse(operation: str, path: str, at: int, size: int) -> None:
        if operation == "read" and path.endswith("/00000000000000000000.seg") and at <= hidden_at < at + size:
            raise OSError(errno.EIO, "Input/output error", path)

    rig.env.on_call = refuse
    for _ in range(2):  # the second start finds the segment before its checkpoint
        rig.restart()
        assert len(rig.timers.table) == 1 and rig.timers.are_missing
        rig.log.checkpoint()
    rig.advance(10_000)
    assert rig.fired() == ["known"]
    base = rig.log.for_timers.active_base
    while rig.log.for_timers.active_base == base:
        rig.fill()
    rig.advance(1000)
    rig.sync()
    rig.env.on_call = None
    rig.restart()
    assert not rig.timers.are_missing
    rig.advance(DAY_MS)
    rig.advance(1000)
    assert sorted(rig.fired()) == ["hidden", "known"]


@pytest.fixture
def copied(rig, monkeypatch):
    """A timer of segment 0 with a copy that is not synced yet: (rig, steps of the relocation, base of the copy)."""
    rig.add("kept", rig.now_ms + DAY_MS)
    while rig.log.for_timers.active_base == 0:
        rig.fill()
    synced = []
    monkeypatch.setattr(rig.timers._store.log, "when_durable", lambda position, callback: synced.append(callback))
    steps = rig.timers.relocate(0)
    while not synced:
        next(steps)
    copied_to = rig.log.for_timers.active_base

    def rest():
        for callback in synced:
            callback()
        monkeypatch.undo()
        yield from steps

    return rig, rest(), copied_to


def test_timers_of_a_segment_have_not_all_ended_while_copies_in_it_are_synced(copied):
    rig, steps, copied_to = copied
    while rig.log.for_timers.active_base == copied_to:
        rig.fill()
    for _ in range(100):
        rig.timers.step()
    for _ in steps:
        rig.sync()
    assert [entry[0] for entry in rig.timers.table.scan(0, 100)[0]] == [copied_to]
    assert rig.log.for_timers._view.ended_timers(copied_to) == []


def test_a_timer_whose_copy_is_deleted_before_it_counts_is_copied_again(copied):
    rig, steps, copied_to = copied
    while rig.log.for_timers.active_base == copied_to:
        rig.fill()
    rig.timers.forget(copied_to)
    for _ in steps:
        rig.sync()
    ((base, *_),) = rig.timers.table.scan(0, 100)[0]
    assert base > copied_to


def test_timers_of_a_segment_stay_ended_when_the_process_ends_before_its_file_is_removed(rig):
    rig.add("moved", rig.now_ms + DAY_MS)
    while rig.log.for_timers.active_base == 0:
        rig.fill()
    for _ in rig.timers.relocate(0):
        rig.sync()
    rig.timers.forget(0)
    rig.advance(DAY_MS)
    rig.sync()
    rig.advance(1000)
    base = rig.log.for_timers.active_base
    while rig.log.for_timers.active_base == base:  # so that no start replays the marks
        rig.fill()
    rig.log.checkpoint()
    rig.restart()
    rig.advance(1000)
    assert rig.fired() == ["moved"]


def test_what_was_noted_of_a_deleted_segment_is_dropped_at_the_next_start(rig):
    rig.log.for_timers._view.put_all_ended(1 << 40)
    rig.log.checkpoint()
    rig.restart()
    assert rig.log.for_timers._view.segments_with_ended_timers() == []
