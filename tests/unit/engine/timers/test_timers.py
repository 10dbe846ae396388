"""Delay, cancel and loop, case by case, on the log itself."""

import errno
import itertools

import pytest

from engine.link.codes import DUPLICATE, INVALID, NOT_CANCELLABLE, OK, TOO_LARGE, UNKNOWN_TOPIC
from engine.link.timer import DUE_MS_MAX
from engine.log.format import pack_batch, pack_record
from engine.log.upkeep import recovery
from engine.log.write import checkpoint
from engine.timers.timers import Added
from tests.unit.engine.timers.rig import Rig

DAY_MS = 86_400_000
WINDOW_MS = 600_000


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
        ({"gap_ms": 3 * DAY_MS, "times": 3, "growth": 2}, [3 * DAY_MS, 3 * DAY_MS, 3 * DAY_MS]),
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


def test_a_loop_is_not_repeated_when_a_power_cut_takes_one_mark_and_keeps_the_next(rig):
    """The disk writes what is not durable in any order."""
    rig.add("a", rig.now_ms, gap_ms=1, times=1)
    marks: list[tuple[int, int]] = []  # (start, end) of each in the log, whose first segment begins at 0
    mark = rig.timers._log.mark

    def noting(*arguments) -> None:
        start = rig.log.end_position
        mark(*arguments)
        marks.append((start, rig.log.end_position))

    rig.timers._log.mark = noting
    while len(marks) < 2:
        rig.env.clock_ms += 1
        rig.timers.step()
    (start, end), _ = marks
    content = rig.env.files[min(path for path in rig.env.files if path.endswith(".seg"))]
    content.seen[start:end] = bytes(end - start)
    rig.kill()
    rig.advance(10_000)
    assert rig.fired() == ["a", "a"]


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
