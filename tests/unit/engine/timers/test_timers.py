"""Delay, cancel and loop, case by case, on the log itself."""

import errno
import itertools

import pytest

from engine.errors import DiskFullError, PartlyWrittenError
from engine.link.codes import DISK_FULL, DUPLICATE, INVALID, NOT_CANCELLABLE, OK, TOO_LARGE, UNKNOWN_TOPIC
from engine.link.timer import DUE_MS_MAX
from engine.log.format import pack_batch, pack_record
from engine.log.upkeep import recovery
from engine.log.write import checkpoint
from engine.timers import recovery as timer_recovery
from engine.timers.timers import Added
from tests.unit.engine.timers.rig import Rig

DAY_MS = 86_400_000


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_message_is_delivered_at_its_millisecond_and_not_before(rig):
    assert rig.add("a", rig.now_ms + 1000) == OK
    rig.advance(999)
    assert rig.fired() == []
    rig.advance(1)
    assert rig.stored()[0][0] == "a" and rig.stored()[0][3] == rig.now_ms


def test_a_delay_is_counted_from_the_receipt_by_the_engines_clock_and_survives_as_a_moment(rig):
    assert rig.add("a", -15_000) == OK
    assert [timer.due_ms for timer in rig.timers.pending(0, 10)[0]] == [rig.now_ms + 15_000]
    rig.advance(10_000)
    rig.sync()
    rig.kill()
    rig.advance(4_999)
    assert rig.fired() == []
    rig.advance(1)
    assert rig.fired() == ["a"]


def test_a_loop_whose_first_moment_is_long_past_begins_now(rig):
    rig.add("a", 1, gap_ms=1000, times=2)
    rig.run()
    assert rig.fired() == ["a"]
    rig.advance(999)
    assert rig.fired() == ["a"]
    rig.advance(1)
    assert rig.fired() == ["a", "a"]


@pytest.mark.parametrize("due_ms", [-(1 << 62), DUE_MS_MAX + 1, (1 << 63) - 1])
def test_a_moment_after_year_9999_is_invalid(rig, due_ms):
    assert rig.add("a", due_ms) == INVALID


@pytest.mark.parametrize("delay_ms", [-DAY_MS, -1, 0])
def test_what_is_due_already_is_delivered_at_once(rig, delay_ms):
    rig.add("a", rig.now_ms + delay_ms)
    rig.run()
    assert rig.fired() == ["a"]


def test_a_keyed_message_goes_to_the_queue_that_was_chosen_for_it(rig):
    for queue in (2, 0, 1):
        rig.add(f"q{queue}", rig.now_ms + 10, queue=queue)
    rig.advance(10)
    assert sorted((name, queue) for name, queue, *_ in rig.stored()) == [("q0", 0), ("q1", 1), ("q2", 2)]


@pytest.mark.parametrize("delays_ms", [[5, 3, 4, 1], [4096, 4095, 1], [20_000, 16_777_216, 400 * DAY_MS, 70_000]])
def test_messages_fire_in_the_order_of_their_due_times(rig, delays_ms):
    start = rig.now_ms
    for delay_ms in delays_ms:
        rig.add(str(delay_ms), start + delay_ms)
    for delay_ms in sorted(delays_ms):
        rig.advance(start + delay_ms - 1 - rig.now_ms)
        assert str(delay_ms) not in rig.fired()
        rig.advance(1)
        assert rig.fired()[-1] == str(delay_ms)


def test_step_says_when_to_call_again_and_nothing_when_nothing_is_pending(rig):
    assert rig.timers.step() is None
    rig.add("a", rig.now_ms + 300)
    rig.run()
    assert 0 < rig.timers.step() <= 300
    rig.advance(300)
    rig.advance(50)
    assert rig.timers.step() is None


def test_a_cancelled_message_never_comes(rig):
    rig.add("a", rig.now_ms + 1000)
    assert rig.cancel("a") == OK
    rig.advance(2000)
    assert rig.fired() == []
    rig.kill()
    rig.advance(2000)
    assert rig.fired() == []


def test_what_is_unknown_delivered_or_cancelled_cannot_be_cancelled(rig):
    assert rig.cancel("nobody") == NOT_CANCELLABLE
    rig.add("a", rig.now_ms + 10)
    rig.advance(10)
    assert rig.cancel("a") == NOT_CANCELLABLE
    rig.add("b", rig.now_ms + 10)
    assert [rig.cancel("b"), rig.cancel("b")] == [OK, NOT_CANCELLABLE]


def test_an_assigned_id_cancels_as_well(rig):
    timer = rig.timer("x", rig.now_ms + 10)
    assigned = bytes(range(16))
    packed = timer._replace(record=b"\1" + assigned + b"m\0", id_at=1, id_size=16).pack()
    assert rig.timers.add(packed, 1) == [Added(OK)]
    assert rig.cancel(assigned.hex()) == OK


def test_an_id_that_is_pending_is_a_duplicate_and_free_again_afterwards(rig):
    assert rig.add("a", rig.now_ms + 10) == OK
    assert rig.add("a", rig.now_ms + 20) == DUPLICATE
    twice = rig.timer("b", rig.now_ms + 10).pack()
    assert rig.timers.add(twice + twice, 2) == [Added(OK), Added(DUPLICATE)]
    rig.advance(10)
    assert rig.add("a", rig.now_ms + 20) == OK
    rig.advance(20)
    assert sorted(rig.fired()) == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic_id": 9}, UNKNOWN_TOPIC),
        ({"queue": 3}, INVALID),
        ({"previous": 8}, INVALID),
        ({"id_size": 0}, INVALID),
        ({"due_ms": DUE_MS_MAX + 1}, INVALID),
    ],
)
def test_a_timer_that_makes_no_sense_is_refused_and_its_neighbours_are_not(rig, changes, code):
    good = [rig.timer(name, rig.now_ms + 10).pack() for name in "ab"]
    bad = rig.timer("c", rig.now_ms + 10)._replace(**changes).pack()
    assert rig.timers.add(good[0] + bad + good[1], 3) == [Added(OK), Added(code), Added(OK)]
    rig.advance(10)
    assert sorted(rig.fired()) == ["a", "b"]


def test_a_timer_with_a_flipped_bit_is_refused(rig):
    packed = bytearray(rig.timer("a", rig.now_ms + 10).pack())
    packed[30] ^= 1
    assert rig.timers.add(bytes(packed), 1) == [Added(INVALID)]


def test_bodies_of_any_bytes_come_as_they_were_sent(rig):
    body = bytes(range(256)) * 70
    assert rig.add("a", rig.now_ms + 10, body=body) == OK
    assert rig.add("b", rig.now_ms + 10, body=body * 2) == TOO_LARGE
    rig.advance(10)
    assert any(
        body in piece.records for queue in range(3) for piece in rig.log.read(rig.topic.id, queue, 0, 10, 1 << 20)
    )


@pytest.mark.parametrize(
    ("loop", "gaps_ms"),
    [
        ({"gap_ms": 2000, "times": 3}, [2000, 2000, 2000]),
        ({"gap_ms": 2000, "times": 4, "growth": 2}, [2000, 4000, 8000, 16000]),
        ({"gap_ms": 3000, "times": 3, "growth": 3}, [3000, 9000, 27000]),
        ({"gap_ms": 50_000_000, "times": 3, "growth": 2}, [50_000_000, DAY_MS, DAY_MS]),
        ({"gap_ms": 2000, "times": 9, "until_ms": 5000}, [2000, 2000]),
        ({"gap_ms": 2000, "times": 0}, []),
    ],
)
def test_a_loop_comes_as_often_and_as_far_apart_as_it_says(rig, loop, gaps_ms):
    start = rig.now_ms + 100
    if "until_ms" in loop:
        loop = {**loop, "until_ms": start + loop["until_ms"]}
    rig.add("a", start, **loop)
    while (pause := rig.timers.step()) is not None:
        rig.advance(max(pause, 1))
    times = [stored_at for *_, stored_at in sorted(rig.stored(), key=lambda row: row[3])]
    assert times[0] == start
    assert [late - soon for soon, late in itertools.pairwise(times)] == gaps_ms


def test_cancelling_a_loop_ends_all_its_rounds(rig):
    rig.add("a", rig.now_ms + 100, gap_ms=100, times=50)
    rig.advance(100)
    rig.advance(100)
    assert rig.cancel("a") == OK
    rig.advance(5000)
    assert rig.fired() == ["a", "a"]


def test_a_cancelled_loop_stays_cancelled_when_the_process_is_killed_before_it_marked_what_had_fired(rig):
    rig.add("a", rig.now_ms + 100, gap_ms=1, times=50)
    rig.sync()
    rig.advance(103)
    assert rig.cancel("a") == OK
    seen = rig.fired()
    assert len(seen) == 4
    rig.kill()
    rig.advance(5000)
    assert rig.fired() == seen


def test_rounds_that_were_missed_follow_at_once(rig):
    rig.add("a", rig.now_ms + 100, gap_ms=100, times=4)
    rig.env.clock_ms += 10_000
    rig.kill()
    rig.run()
    assert rig.fired() == ["a"] * 5


def test_a_clock_that_jumps_ahead_fires_what_is_due_by_it_and_only_that(rig):
    rig.add("soon", rig.now_ms + 1_800_000)
    rig.add("late", rig.now_ms + 5_400_000)
    rig.advance(3_600_000)
    assert rig.fired() == ["soon"]
    rig.advance(1_800_000)
    assert rig.fired() == ["soon", "late"]


def test_a_clock_that_is_set_back_fires_nothing_early_and_nothing_twice(rig):
    rig.add("first", rig.now_ms + 1000)
    rig.add("second", rig.now_ms + 5000)
    rig.advance(1000)
    rig.advance(-3_600_000)
    rig.add("third", rig.now_ms + 1000)
    rig.run()
    assert rig.fired() == ["first"]
    rig.advance(1000)
    assert sorted(rig.fired()) == ["first", "third"]
    rig.advance(3_600_000 + 3000)
    assert sorted(rig.fired()) == ["first", "second", "third"]


@pytest.mark.parametrize("how", ["kill", "restart", "cut_power"])
def test_pending_messages_survive(rig, how):
    for number in range(50):
        rig.add(str(number), rig.now_ms + 1000 + number)
    rig.sync()
    getattr(rig, how)()
    assert len(rig.timers.table) == 50
    rig.advance(2000)
    assert sorted(rig.fired(), key=int) == [str(number) for number in range(50)]


def test_what_had_fired_without_a_mark_when_the_process_was_killed_does_not_fire_again(rig):
    rig.add("a", rig.now_ms + 10)
    rig.advance(10)
    rig.kill()
    rig.advance(10_000)
    assert rig.fired() == ["a"]


@pytest.mark.parametrize("is_checkpoint_written", [True, False])
@pytest.mark.parametrize("how", ["kill", "cut_power"])
def test_what_had_fired_without_a_mark_in_a_segment_that_is_full_does_not_fire_again(
    rig, how, is_checkpoint_written, monkeypatch
):
    rig.add("one", rig.now_ms + 1000)
    rig.sync()
    rig.log.checkpoint()
    rig.env.clock_ms += 1500
    rig.timers.step()
    rig.sync()
    if not is_checkpoint_written:  # the process ends between the index file of the segment and the checkpoint
        monkeypatch.setattr(checkpoint, "write_directory", refuse_disk)
    base = rig.log.for_timers.active_base
    while rig.log.for_timers.active_base == base:
        rig.fill()
    rig.sync()
    monkeypatch.undo()
    getattr(rig, how)()
    assert len(rig.timers.table) == 0
    rig.advance(10_000)
    assert rig.fired() == ["one"]


def refuse_disk(*_) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_without_delayed_messages_is_not_scanned_for_them(rig, monkeypatch):
    for _ in range(60):
        rig.fill()
    rig.sync()
    scanned = []
    scan = recovery.scan_segment
    monkeypatch.setattr(
        recovery, "scan_segment", lambda *given, **more: scanned.append(given[1]) or scan(*given, **more)
    )
    rig.kill()
    assert [segment.base for segment in scanned] == [rig.log.for_timers.active_base]


def test_the_folder_state_can_be_built_again(rig):
    for number in range(40):
        rig.add(str(number), rig.now_ms + 1000 + number * 1000)
        rig.fill()
    rig.advance(20_000)
    rig.advance(60)
    rig.sync()
    rig.env.stores.clear()
    rig.kill()
    rig.advance(30_000)
    assert sorted(rig.fired(), key=int) == [str(number) for number in range(40)]


def test_retention_carries_pending_messages_on(rig):
    for number in range(5):
        rig.add(f"late{number}", rig.now_ms + 10 * DAY_MS)
    for _ in range(100):
        rig.fill()
    rig.log.checkpoint()
    before = rig.log.retention.oldest_base
    rig.env.clock_ms += 4 * DAY_MS
    for _ in range(200):
        rig.env.clock_ms += rig.log.retention.step(rig.timers)
        rig.run()
    assert rig.log.retention.oldest_base > before
    rig.kill()
    assert len(rig.timers.table) == 5
    assert rig.cancel("late4") == OK
    rig.advance(10 * DAY_MS)
    assert sorted(rig.fired()) == [f"late{number}" for number in range(4)]


def test_a_segment_with_few_pending_messages_is_emptied(rig):
    rig.add("late", rig.now_ms + DAY_MS)
    for number in range(60):
        rig.add(str(number), rig.now_ms + 10)
    for _ in range(60):
        rig.fill()
    for _ in range(20):
        rig.advance(100)
    assert rig.timers.counts.carried == 1
    rig.log.checkpoint()
    assert [segment.base for segment, _ in rig.log.for_timers.segments()] == [rig.timers.table.scan(0, 1000)[0][0][0]]
    rig.kill()
    rig.advance(DAY_MS)
    assert len(rig.fired()) == 61


def test_a_disk_without_room_delays_and_loses_nothing(rig):
    rig.add("a", rig.now_ms + 10)
    rig.log.writer.refusal.refuse("full")
    rig.env.clock_ms += 10
    assert rig.timers.step() > 0
    assert rig.fired() == []
    rig.log.writer.refusal.refuse("")
    rig.advance(1000)
    assert rig.fired() == ["a"]


WINDOW_MS = 600_000


def test_a_fired_id_is_a_duplicate_with_its_place_until_its_window_is_over(rig):
    assert rig.add("a", rig.now_ms + 10, id_window_ms=WINDOW_MS) == OK
    rig.advance(10)
    ((_, queue, offset, _),) = rig.stored()
    again = rig.timer("a", rig.now_ms + 10, id_window_ms=WINDOW_MS).pack()
    assert rig.timers.add(again, 1) == [Added(DUPLICATE, queue, offset)]
    rig.kill()
    assert rig.timers.add(again, 1) == [Added(DUPLICATE, queue, offset)]
    rig.advance(WINDOW_MS + 1000)
    assert rig.add("a", rig.now_ms + 10, id_window_ms=WINDOW_MS) == OK


def test_a_due_message_whose_id_was_stored_meanwhile_ends_without_a_second_copy(rig):
    rig.add("a", rig.now_ms + 10, id_window_ms=WINDOW_MS)
    plain = pack_batch(0, rig.topic.id, 1, [pack_record(rig.timer("a", 0).record[1:])])
    checked = plain[:11] + b"\1" + plain[12:28] + WINDOW_MS.to_bytes(4, "little") + plain[32:]
    assert rig.log.append(checked, 1, rig.now_ms)[0][0] == OK
    rig.advance(10)
    assert (rig.fired(), rig.timers.counts.duplicates, len(rig.timers.table)) == (["a"], 1, 0)
    rig.advance(1000)
    rig.kill()
    rig.advance(10 * WINDOW_MS)
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


def test_a_segment_that_a_start_could_not_read_stays_for_the_next_start_if_the_disk_reads_it_again(rig, monkeypatch):
    for name in "ab":
        rig.add(name, rig.now_ms + DAY_MS)
    ((_, at, *_), *_) = sorted(rig.timers.table.scan(0, 100)[0])
    while rig.log.for_timers.active_base == 0:
        rig.fill()
    load = timer_recovery.load
    with monkeypatch.context() as patch:
        patch.setattr(
            timer_recovery,
            "load",
            lambda table, source, file, *rest: load(table, source, OneBadSector(file, at), *rest),
        )
        rig.restart()
    assert len(rig.timers.table) == 1
    for why in ("cannot be read now", "restart the engine", "cannot be read now"):
        with pytest.raises(OSError, match=why):
            for _ in rig.timers.relocate(0):
                rig.sync()
        rig.env.clock_ms += 60_000 if why != "restart the engine" else 59_000
    rig.restart()
    for _ in rig.timers.relocate(0):
        rig.sync()
    rig.timers.forget(0)
    rig.advance(DAY_MS)
    rig.advance(1000)
    assert sorted(rig.fired()) == ["a", "b"]


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


class OneBadSector:
    """A file of which one address cannot be read."""

    def __init__(self, file, bad):
        self._file, self._bad = file, bad

    def read_at(self, size, start):
        if start <= self._bad < start + size:
            raise OSError(errno.EIO, "Input/output error")
        return self._file.read_at(size, start)


def test_a_sector_that_a_start_cannot_read_costs_its_own_messages_and_only_until_it_is_read(rig, monkeypatch, caplog):
    for name in "abc":
        rig.add(name, rig.now_ms + 1000)
    _, at, *_ = sorted(rig.timers.table.scan(0, 100)[0])[1]
    load = timer_recovery.load
    with monkeypatch.context() as patch:
        patch.setattr(
            timer_recovery,
            "load",
            lambda table, source, file, *rest: load(table, source, OneBadSector(file, at), *rest),
        )
        rig.restart()
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


def test_a_message_that_is_refused_for_good_holds_up_nothing(rig, monkeypatch):
    for queue in range(2):
        rig.add(f"q{queue}", rig.now_ms + 10, queue=queue)
    append = rig.log.for_timers.append

    def refused(batches, count):
        (_, *others) = append(batches, count)
        return [(TOO_LARGE, 0), *others]

    monkeypatch.setattr(rig.log.for_timers, "append", refused)
    rig.advance(10)
    monkeypatch.undo()
    rig.advance(1000)
    assert (rig.timers.counts.lost, len(rig.timers.table), rig.timers.step()) == (1, 0, None)
