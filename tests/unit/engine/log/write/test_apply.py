"""A log that gets another one's bytes is that log: its files, and all that is derived from them."""

from random import Random

import pytest
from lives import live
from machine import NOW
from pair import HEADER, Pair

from engine.env.real import RealEnv
from engine.env.simulated import ProcessEnded, SimulatedEnv
from engine.errors import DiskFullError
from engine.link.timer import Timer
from engine.log.format import CONTROL_TOPIC_ID, KIND_FIRED, KIND_TIMER, pack_batch
from engine.log.types import LEASES_KEY

DAY_MS = 86_400_000


@pytest.fixture
def pair(form):
    made = Pair(form, SimulatedEnv(), SimulatedEnv())
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_slave_has_the_masters_files_topics_progress_and_messages(pair, seed):
    random = Random(seed)
    for _ in range(4):
        live(pair.master, random, 60)
        pair.follow(random)
        pair.assert_equal()
    assert len(pair.master.log.segments.sealed.bases) > 2
    for restart in (pair.slave.reopen, pair.slave.kill):
        restart()
        pair.assert_equal()


def test_it_is_so_on_real_files_too(form, tmp_path):
    pair = Pair(form, RealEnv(), RealEnv(), str(tmp_path / "master"), str(tmp_path / "slave"))
    random = Random(1)
    live(pair.master, random, 200)
    pair.follow(random)
    pair.assert_equal()
    pair.slave.reopen()
    pair.assert_equal()
    pair.close()


def test_a_slave_knows_how_long_ago_the_state_of_leases_came_until_it_writes_itself(pair):
    assert pair.slave.log.since_leases_ms() is None
    pair.master.log.put_progress([(LEASES_KEY, b"state"), (b"\0other", b"1")])
    pair.follow(Random(1))
    pair.slave.env.clock_ms += 1_500
    assert pair.slave.log.since_leases_ms() == 1_500
    pair.master.log.put_progress([(b"\0other", b"2")])
    pair.follow(Random(1))
    assert pair.slave.log.since_leases_ms() == 1_500
    pair.slave.log.lead(lambda position, call: call())
    pair.slave.log.cease()
    assert pair.slave.log.since_leases_ms() is None


def test_a_clock_that_was_accepted_at_the_master_before_counts_at_the_next_one_which_had_stamped_later_times(pair):
    appender = pair.slave.log.writer.appender
    appender.stored_ms_min = pair.slave.env.now_ms() + DAY_MS
    pair.master.log.put_progress([(b"\0other", b"1")])
    pair.follow(Random(1))
    pair.slave.log.lead(lambda position, call: call())
    assert appender.stored_ms_min == pair.slave.log.follower.newest_ms == pair.master.env.now_ms()


def test_a_slave_that_was_killed_knows_fired_timers_of_full_segments_that_no_mark_covers(pair):
    master = pair.master
    timer = Timer(NOW, 1, 0, 0, 0, 0, 0, 1, 1, 16, 0, b"\1" + bytes(16) + b"due").pack()
    batches = [pack_batch(KIND_TIMER, CONTROL_TOPIC_ID, KIND_TIMER, [timer]), master.batch(1, 0, [b"due"], KIND_FIRED)]
    for batch in batches:
        master.log.for_timers.append(batch, 1)
    fired_at = master.log.end_position - len(batches[1])
    live(master, Random(5), 150)
    pair.follow(Random(5))
    assert pair.slave.log.segments.active.base > fired_at
    pair.slave.log.checkpoint()
    pair.slave.kill()
    assert [base + at for base, at, _ in pair.slave.log.for_timers.fired] == [fired_at]
    pair.follow(Random(5))


def test_a_slave_goes_on_as_the_master_would_have(pair):
    live(pair.master, Random(3), 100)
    pair.follow(Random(3))
    for log in (pair.master.log, pair.slave.log):
        (topic,) = log.create_topics([("later", 2)])
        data = pair.master.batch(topic.id, 1, [b"first"]) + pair.master.batch(1, 0, [b"next"])
        assert [code for code, _ in log.append(data, 2, NOW + 5)] == [0, 0]
    pair.assert_equal()


@pytest.mark.parametrize("seed", range(4))
def test_two_logs_that_lead_in_turn_without_being_opened_again_stay_equal(pair, seed):
    random = Random(seed)
    for epoch in range(1, 8):
        pair.master.log.refusal.follow("")
        pair.master.log.lead(lambda position, callback: callback())
        pair.master.log.epochs.begin(epoch, 1, "a")
        live(pair.master, random, random.choice((3, 60)))
        pair.master.log.purge(1, {0: random.randrange(3)})
        pair.follow(random)
        pair.slave.log.lead(lambda position, callback: callback())  # reads what was purged
        pair.assert_equal()
        pair.master.log.refusal.follow("the other one leads")
        pair.master.log.cease()
        pair.master, pair.slave = pair.slave, pair.master
    assert len(pair.master.log.segments.sealed.bases) > 2
    for each in (pair.master, pair.slave):
        each.reopen()
        pair.assert_equal()


def test_a_log_that_has_ceased_to_lead_calls_no_listener_of_its_node_and_stamps_no_earlier_time(pair):
    log, called = pair.master.log, []
    log.growth.on_growth(lambda *growth: called.append(growth))
    log.cease()
    pair.master.log.create_topics([("grown", 1)])
    pair.master.log.create_topics([("grown", 2)])
    assert called == [] and log.follower.newest_ms >= NOW


def test_ids_that_the_master_has_checked_are_repeated_ones_on_the_slave(pair):
    message = b"\x0b\0\x06\0\0\0\x02id\0"
    pair.master.log.append(checked(pair, message), 1, NOW)
    pair.follow(Random(1))
    ((code, offset),) = pair.slave.log.append(checked(pair, message), 1, NOW)
    assert (code, offset) == (2, 0)


def checked(pair: Pair, message: bytes) -> bytes:
    """A batch of one message whose id is checked for an hour."""
    data = bytearray(pair.master.batch(1, 0, [message]))
    data[11], data[28:32] = 1, (3_600_000).to_bytes(4, "little")
    return bytes(data)


@pytest.fixture
def old_pair(form):
    """A log of three days, and a new copy without a message."""
    envs = SimulatedEnv(), SimulatedEnv()
    for env in envs:
        env.clock_ms = NOW
    pair = Pair(form, *envs)
    pair.slave.close()
    for env in envs:
        env.clock_ms += 3 * DAY_MS
    pair.slave.open()
    yield pair
    pair.close()


def test_ids_that_a_new_copy_of_an_old_log_takes_are_forgotten_as_on_the_master(old_pair):
    message = checked(old_pair, b"\x0b\0\x06\0\0\0\x02id\0")
    old_pair.master.log.append(message, 1, NOW + 3 * DAY_MS)
    old_pair.follow(Random(1))
    found = []
    for _ in range(3):
        old_pair.slave.env.clock_ms += 1_500_000
        ids = old_pair.slave.log.appender
        found.append(ids.ids.find_id(1, b"id", ids.id_time.now_ms()))
    assert found == [(0, 0), (0, 0), None], "they are checked for an hour"


def test_a_new_copy_of_an_old_log_that_leads_counts_time_as_the_old_master_did(old_pair):
    """Else it would delete nothing for as long as the log was old."""
    pair = old_pair
    pair.master.log.append(pair.master.batch(1, 0, [b"now"]), 1, NOW + 3 * DAY_MS)
    pair.follow(Random(1))
    assert pair.slave.log.log_time.time.ahead_ms > 2 * DAY_MS
    pair.slave.log.lead(lambda position, callback: None)
    assert not pair.slave.log.log_time.time.ahead_ms
    assert pair.slave.log.log_time.time.now_ms() == NOW + 3 * DAY_MS


def test_bytes_for_another_place_or_of_another_log_are_refused_and_change_nothing(pair):
    live(pair.master, Random(5), 5)
    follower, error = pair.slave.log.follower, pair.form.apply.ApplyError
    position, data = pair.next_bytes(100_000)
    other = Pair(pair.form, SimulatedEnv(2), SimulatedEnv(2))
    live(other.master, Random(5), 5)
    for at, wrong in ((position + 8, data), (position, other.next_bytes(100_000)[1]), (position, bytes(64))):
        with pytest.raises(error):
            follower.apply(at, wrong)
        assert pair.slave.log.end_position == position and pair.slave.log.topics() == []
    other.close()
    with pytest.raises(error, match="over the end"):
        follower.apply(position, bytes(1 << 20))
    pair.follow(Random(5))
    pair.assert_equal()


def test_whole_batches_that_would_leave_a_hole_or_are_there_already_are_refused(pair):
    bodies = [b"%d" % number for number in range(4)]
    for body in bodies:
        pair.master.append(1, 0, body)
    follower, error = pair.slave.log.follower, pair.form.apply.ApplyError
    position, data = pair.next_bytes(100_000)
    first = int.from_bytes(data[4:8], "little") + 7 & ~7
    for taken in (b"", data):
        follower.apply(position, taken)
        for wrong in (position, position + first):
            if wrong != pair.slave.log.end_position:
                with pytest.raises(error, match="only those at the end"):
                    follower.apply(wrong, data[wrong - position :])
    assert pair.slave.bodies(1, 0) == bodies
    pair.assert_equal()


def test_whole_batches_before_damage_are_applied(pair):
    for number in range(6):
        pair.master.append(1, 0, b"%d" % number)
    position, data = pair.next_bytes(100_000)
    broken = bytearray(data)
    broken[-10] ^= 1
    with pytest.raises(pair.form.apply.ApplyError, match="no whole batches") as caught:
        pair.slave.log.follower.apply(position, bytes(broken))
    assert caught.value.position == pair.slave.log.end_position > position
    assert pair.slave.bodies(1, 0) == [b"0", b"1", b"2", b"3", b"4"]
    pair.follow(Random(1))
    pair.assert_equal()


def test_a_header_that_does_not_follow_is_refused(pair):
    header = pair.master.log.segments.active.file.read_at(HEADER, 0)
    for wrong, reason in ((header, "does not follow"), (header[:20] + b"\xff" + header[21:], "does not verify")):
        with pytest.raises(pair.form.apply.ApplyError, match=reason):
            pair.slave.log.follower.begin_segment(wrong)


def test_a_full_disk_changes_nothing_and_the_same_bytes_are_taken_later(pair, monkeypatch):
    live(pair.master, Random(7), 5)
    position, data = pair.next_bytes(100_000)
    file = pair.slave.log.segments.active.file

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(file, "write_at", full)
        with pytest.raises(DiskFullError):
            pair.slave.log.follower.apply(position, data)
    assert pair.slave.log.end_position == position
    pair.follow(Random(7))
    pair.assert_equal()


def test_a_process_whose_view_cannot_take_a_control_record_ends_and_the_next_one_has_it(pair, monkeypatch):
    pair.master.log.create_topics([("later", 2)])

    def refuse(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(pair.slave.log.writer.catalogue, "apply", refuse)
    with pytest.raises(ProcessEnded, match="control record"):
        pair.slave.log.follower.apply(*pair.next_bytes(100_000))
    pair.slave.kill()
    pair.assert_equal()
