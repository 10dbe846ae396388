"""Deleting segments: what goes, when, in which order, and what stays true of the rest at every power cut."""

import errno
import logging
import struct
from random import Random

import pytest
from machine import Machine

from engine.config import LogConfig
from engine.delivery.delivery import Delivery
from engine.delivery.pull import PullRequest
from engine.env.simulated import PowerCut, SimulatedEnv
from engine.errors import CheckpointError, DiskFullError, OffsetOutOfRangeError
from engine.log.read.retentions import Retention

HOUR = 3_600_000
GIB = 1 << 30


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


def clocked(form, **settings) -> Machine:
    """A simulated machine whose messages are stored at its clock's time."""
    return Machine(form, SimulatedEnv(), "/data", **settings)


def append(m: Machine, topic_id: int, queue: int, *bodies: bytes) -> int:
    ((code, offset),) = m.log.append(m.batch(topic_id, queue, list(bodies)), 1, m.env.clock_ms)
    assert code == 0
    return offset


def fill(m: Machine, topic_id: int = 1, queue: int = 0, segments: int = 3) -> int:
    """Append to one queue until the log has rolled so often; returns the queue's end offset."""
    rolls, base = 0, m.log.appender.segment_base
    while rolls < segments:
        append(m, topic_id, queue, bytes(500))
        if m.log.appender.segment_base != base:
            rolls, base = rolls + 1, m.log.appender.segment_base
    return m.log.bounds(topic_id, queue)[1]


def fill_named(m: Machine, segments: int) -> None:
    """The same with messages that have an id."""
    base, number = m.log.appender.segment_base, 0
    while m.log.appender.segment_base < base + segments * m.config.segment_bytes:
        name, number = b"id-%d" % number, number + 1
        append(m, 1, number % 4, struct.pack(">bhi", 11, 6, len(name)) + name + b"\0" + bytes(300))
    append(m, 1, 0, bytes(2000))


def make_names(m: Machine) -> None:
    """Let lookup files and partial indexes be made, until there is nothing to do."""
    m.log.look_up.maker.partials.partial_bytes = 1000
    next(pause_s for pause_s in m.log.look_up.maker.steps() if pause_s == m.form.maker.IDLE_S)


def run(m: Machine, seconds: int = 60) -> None:
    """Let the clock and the deleter go on."""
    until = m.env.clock_ms + seconds * 1000
    while m.env.clock_ms < until:
        m.env.clock_ms += m.log.retention.step()


def segment_files(m: Machine) -> list[str]:
    return [path for path in m.env.files if path.endswith(".seg")]


class Definitions:
    """What topics want, as the configuration would say it."""

    def __init__(self, **own: Retention) -> None:
        self.own, self.generation, self.is_known = own, 1, True

    def of(self, topic: str) -> Retention:
        return self.own.get(topic, Retention())


def test_segments_go_when_their_newest_message_is_too_old_and_the_bounds_follow(form):
    m = clocked(form)
    end = fill(m)
    run(m)
    assert m.log.bounds(1, 0) == (0, end)
    m.env.clock_ms += 72 * HOUR
    run(m)
    first, still = m.log.bounds(1, 0)
    assert 0 < first < still == end
    assert m.log.retention.deleted_segments == 3
    assert len(segment_files(m)) == 2  # the one being written and the one made ahead
    with pytest.raises(OffsetOutOfRangeError) as caught:
        m.log.read(1, 0, 0, 10, 1000)
    assert caught.value.first_offset == first
    assert len(m.bodies(1, 0, first)) == end - first


def test_one_segment_goes_an_interval_however_many_are_due(form):
    m = clocked(form, delete_interval_ms=5000)
    fill(m, segments=6)
    m.env.clock_ms += 72 * HOUR
    run(m, 2)
    assert m.log.retention.deleted_segments == 1
    run(m, 10)
    assert m.log.retention.deleted_segments == 3


def test_a_segment_stays_while_one_topic_in_it_wants_it_longer(form):
    m = clocked(form)
    m.log.start_offsets.policy = Definitions(second=Retention(age_ms=100 * HOUR))
    append(m, 2, 0, b"kept")
    fill(m)
    m.env.clock_ms += 80 * HOUR
    run(m)
    assert m.log.retention.deleted_segments == 0
    assert m.bodies(2, 0) == [b"kept"]
    m.env.clock_ms += 21 * HOUR
    run(m)
    assert m.log.retention.deleted_segments == 3


class Counting(Definitions):
    """How often a topic was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def of(self, topic: str) -> Retention:
        self.asked += topic.startswith("many-")
        return super().of(topic)


def test_a_segment_of_many_topics_asks_a_few_of_them_while_it_is_young_and_all_of_them_once(form):
    m = clocked(form, segment_bytes=1 << 20, delete_interval_ms=1000)
    topics = m.log.create_topics([(f"many-{number}", 1) for number in range(500)])
    policy = m.log.start_offsets.policy = Counting()
    while m.log.retentions.keep_some():
        pass
    policy.asked = 0
    for topic in topics:
        append(m, topic.id, 0, b"m")
    fill(m, segments=1)
    run(m)
    assert m.log.retention.deleted_segments == 0
    assert 0 < policy.asked <= 50
    m.env.clock_ms += 72 * HOUR
    run(m)
    assert m.log.retention.deleted_segments == 1
    assert policy.asked == 500


def test_a_changed_definition_counts_for_segments_that_were_looked_at_before(form):
    m = clocked(form)
    policy = m.log.start_offsets.policy = Definitions(first=Retention(age_ms=100 * HOUR))
    fill(m)
    m.env.clock_ms += 80 * HOUR
    run(m)
    assert m.log.retention.deleted_segments == 0
    policy.own, policy.generation = {}, 2
    run(m)
    assert m.log.retention.deleted_segments == 3


def test_nothing_is_too_old_before_the_definitions_are_known(form):
    m = clocked(form)
    policy = m.log.start_offsets.policy = Definitions()
    policy.is_known = False
    fill(m)
    m.env.clock_ms += 1000 * HOUR
    run(m)
    assert m.log.retention.deleted_segments == 0


def test_no_retention_keeps_everything(form):
    m = clocked(form, retention_ms=0)
    fill(m)
    m.env.clock_ms += 100_000 * HOUR
    run(m)
    assert m.log.retention.deleted_segments == 0


def test_a_topics_own_age_hides_its_older_messages_at_once(form):
    m = clocked(form)
    m.log.start_offsets.policy = Definitions(second=Retention(age_ms=HOUR))
    append(m, 2, 0, b"old", b"of the same batch")
    append(m, 1, 0, b"of another topic")
    m.env.clock_ms += 2 * HOUR
    append(m, 2, 0, b"new")
    assert m.log.bounds(2, 0) == (2, 3)
    assert m.log.bounds(1, 0) == (0, 1)
    assert m.bodies(2, 0, 2) == [b"new"]
    assert m.log.offset_at_time(2, 0, 0) == 2
    with pytest.raises(OffsetOutOfRangeError) as caught:
        m.log.read(2, 0, 0, 10, 1000)
    assert caught.value.first_offset == 2
    m.env.clock_ms += 2 * HOUR
    assert m.log.bounds(2, 0) == (3, 3)


def test_a_start_with_a_clock_that_is_a_day_ahead_hides_nothing_of_the_shortest_retention(form):
    m, policy = clocked(form), Definitions(second=Retention(age_ms=HOUR))
    append(m, 2, 0, b"minutes old")
    m.env.clock_ms += HOUR // 4
    append(m, 2, 0, b"newest")
    m.env.wall_shift_ms += 30 * HOUR
    m.reopen()
    m.log.start_offsets.policy = policy
    assert m.log.bounds(2, 0) == (0, 2)
    run(m, 60)
    append(m, 2, 0, b"stored under a wrong time")
    m.env.wall_shift_ms = 0
    run(m, 60)
    assert m.log.bounds(2, 0) == (0, 3)


@pytest.mark.parametrize("rolls", [0, 3])
def test_a_topics_own_size_keeps_its_newest_batches_and_always_the_last(form, rolls):
    m = clocked(form)
    policy = m.log.start_offsets.policy = Definitions(second=Retention(size_bytes=3000))
    for i in range(10):
        append(m, 2, 0, b"%d" % i * 900)
        if rolls:
            fill(m, segments=1)
    assert m.log.bounds(2, 0) == (7, 10)
    policy.own, policy.generation = {"second": Retention(size_bytes=10)}, 2
    assert m.log.bounds(2, 0) == (9, 10)
    policy.own, policy.generation = {"second": Retention(size_bytes=100_000)}, 3
    assert m.log.bounds(2, 0) == (0, 10)


def test_the_log_keeps_to_its_total_size(form):
    m = clocked(form, log_bytes_max=4 * 8192)
    fill(m, segments=10)
    run(m)
    assert m.log.retention.log_bytes <= 4 * 8192
    assert m.log.retention.early_segments == m.log.retention.deleted_segments > 0


def test_what_lies_beside_segments_counts_towards_the_total_size_also_after_a_start(form):
    m = clocked(form, log_bytes_max=8 * 8192)
    fill_named(m, segments=6)
    beside = {path: len(content.seen) for path, content in m.env.files.items() if ".seg" not in path}
    assert m.log.retention.side_bytes == sum(beside.values()) > 0
    run(m)
    assert m.log.retention.deleted_segments == 0
    make_names(m)
    beside = {path: len(content.seen) for path, content in m.env.files.items() if ".seg" not in path}
    assert any(path.endswith(".mid") for path in beside) and any(path.endswith(".tmp") for path in beside)
    assert m.log.retention.side_bytes == sum(beside.values())
    assert m.log.retention.log_bytes < 8 * 8192 < m.log.retention.log_bytes + m.log.retention.side_bytes
    run(m)
    assert m.log.retention.early_segments > 0
    assert 8192 < m.log.retention.log_bytes + m.log.retention.side_bytes <= 8 * 8192
    m.reopen()
    beside = {path: len(content.seen) for path, content in m.env.files.items() if ".seg" not in path}
    assert m.log.retention.side_bytes == sum(beside.values()) > 4 * 4096


@pytest.mark.parametrize("loss", ["nothing", "state"])
def test_counters_topics_and_progress_outlive_all_their_segments(form, loss):
    m = clocked(form)
    append(m, 2, 0, b"a", b"b", b"c")
    append(m, 1, 3, b"d")
    m.log.put_progress([(b"kept", b"1")])
    m.log.put_progress([(b"changed", b"1")])
    m.log.put_progress([(b"removed", b"1")])
    m.log.put_progress([(b"removed", b"")])
    end = fill(m)
    m.log.put_progress([(b"changed", b"2")])
    for _ in range(2):  # and the segments to which they were carried
        m.env.clock_ms += 80 * HOUR
        run(m)
        end = fill(m, segments=2)
    m.close()
    if loss == "state":
        m.env.stores.clear()
    m.open()
    assert [topic[:3] for topic in m.log.topics()] == [(1, "first", 4), (2, "second", 1)]
    assert dict(m.log.progress()) == {b"kept": b"1", b"changed": b"2"}
    assert m.log.bounds(2, 0) == (3, 3)
    assert m.log.bounds(1, 3) == (1, 1)
    assert m.log.bounds(1, 0)[1] == end
    assert append(m, 2, 0, b"next") == 3
    assert append(m, 1, 3, b"next") == 1
    assert m.bodies(2, 0, 3) == [b"next"]
    assert m.log.create_topics([("third", 1)])[0].id == 3
    m.reopen()
    assert m.bodies(2, 0, 3) == [b"next"]


def test_the_log_knows_its_epochs_after_their_segments_are_gone(form):
    m = clocked(form)
    for epoch in (2, 5):
        m.log.epochs.begin(epoch, 1, "a")
        fill(m)
    known = m.log.epochs.history().starts
    m.env.clock_ms += 80 * HOUR
    run(m)
    assert m.log.retention.deleted_segments == 6
    m.close()
    m.env.stores.clear()
    m.open()
    assert m.log.epochs.history().starts == known


def test_the_view_forgets_the_segments_of_busy_queues(form):
    m = clocked(form)
    fill(m, segments=20)
    m.env.clock_ms += 80 * HOUR
    run(m)
    m.log.checkpoint()
    keys = [key for key in m.env.stores["/data/state"] if key[:9] == b"q" + bytes([0, 0, 0, 1]) + bytes(4)]
    assert len(keys) == 1


def test_a_power_cut_at_every_operation_of_a_deletion_loses_nothing_else(form):
    random = Random(5)
    for at in range(1, 200):
        m = clocked(form)
        append(m, 2, 0, b"a", b"b")
        m.log.put_progress([(b"kept", b"1")])
        end = fill(m, segments=2)
        m.durable()
        m.env.clock_ms += 73 * HOUR
        m.env.power_cut_at = m.env.operations + at
        try:
            run(m, 10)
            done = True
        except PowerCut:
            done = False
        m.env.power_cut_at = 0
        m.crash(random if at % 2 else None)
        if at % 3 == 0:
            m.close()
            m.env.stores.clear()
            m.open()
        m.log.retention.accept_clock()  # the last record is 73 hours old
        first, found_end = m.log.bounds(1, 0)
        assert found_end == end
        assert len(m.bodies(1, 0, first)) == end - first
        assert m.log.bounds(2, 0)[1] == 2
        assert dict(m.log.progress()) == {b"kept": b"1"}
        assert append(m, 2, 0, b"next") == 2
        run(m, 10)
        assert m.log.retention.oldest_base > 0
        assert {p[:-4] for p in m.env.files if p.endswith(".idx")} <= {p[:-4] for p in segment_files(m)}
        m.close()
        if done:
            return
    raise AssertionError("the deletion never came to its end")


def test_a_deletion_that_the_disk_refuses_is_told_and_tried_again_at_the_next_start(form):
    m = clocked(form)
    fill(m, segments=1)
    m.env.clock_ms += 73 * HOUR
    m.env.fail("unlink", errno.EIO)
    run(m)
    assert m.log.bounds(1, 0)[0] > 0
    m.env.heal()
    m.reopen()
    run(m)
    assert len(segment_files(m)) == 2


def test_the_disk_is_watched_with_a_warning_then_early_deletion_then_refusal_and_recovers(form):
    m = clocked(form)
    fill(m, segments=8)
    levels = []
    for used in (84, 86, 91, 96, 94.5, 93, 89.5, 80):
        m.env.disk_used, m.env.disk_free = int(used * 10 * GIB), int((100 - used) * 10 * GIB)
        m.env.clock_ms += 1000
        while m.log.retention.step() < 1000:
            pass
        levels.append(m.log.retention.disk.level.name)
        try:
            append(m, 1, 0, b"x")
            refused = False
        except DiskFullError as error:
            assert "96.0 % full" in str(error) or "94.5 % full" in str(error)
            refused = True
        assert refused == (levels[-1] == "REFUSE")
    assert levels == ["FINE", "WARN", "DELETE", "REFUSE", "REFUSE", "DELETE", "DELETE", "FINE"]
    assert m.log.retention.early_segments == m.log.retention.deleted_segments == 5


def test_the_reserve_counts_on_disks_of_any_size(form):
    m = clocked(form, disk_reserve_bytes=GIB)
    for free, level in ((3 * GIB, "FINE"), (GIB * 3 // 2, "DELETE"), (GIB // 2, "REFUSE"), (3 * GIB, "FINE")):
        m.env.disk_used, m.env.disk_free = GIB, free
        m.env.clock_ms += 1000
        m.log.retention.step()
        assert m.log.retention.disk.level.name == level


def test_topics_and_progress_are_taken_while_messages_are_refused(form):
    m = clocked(form)
    m.log.writer.refusal.refuse("the disk is full")
    with pytest.raises(DiskFullError, match="the disk is full"):
        append(m, 1, 0, b"x")
    m.log.put_progress([(b"key", b"value")])
    assert m.log.create_topics([("third", 1)])[0].id == 3
    m.log.writer.refusal.refuse("")
    assert append(m, 1, 0, b"x") == 0


def test_appends_are_refused_while_many_full_segments_cannot_be_sealed(form):
    m = clocked(form)

    def step() -> str:
        m.env.clock_ms += 1000
        m.log.retention.step()
        return m.log.retention.health

    assert step() is True
    m.env.fail("store", errno.EIO)
    fill(m, segments=6)
    assert step() is True
    fill(m, segments=6)
    assert "full segments cannot be sealed" in step()
    with pytest.raises(DiskFullError, match="disk error: full segments cannot be sealed"):
        append(m, 1, 0, b"x")
    with pytest.raises(CheckpointError, match="the next start replays it"):
        m.log.checkpoint()
    m.env.heal()
    step()  # it seals
    assert step() is True
    end = m.log.bounds(1, 0)[1]
    assert append(m, 1, 0, b"x") == end
    m.log.checkpoint()


def test_a_segment_whose_counters_cannot_be_relocated_is_kept_while_nothing_has_to_make_room(form, monkeypatch):
    m = clocked(form, retention_ms=HOUR)
    fill(m, segments=3)
    m.log.checkpoint()

    def refuse(*_):
        raise DiskFullError("no room for a control record")

    with monkeypatch.context() as patch:
        patch.setattr(type(m.log.writer.control), "append", refuse)
        run(m, 7200)
        assert m.log.retention.deleted_segments == 0
    run(m, 10)
    assert m.log.retention.deleted_segments == 3


def test_faults_of_the_settings_come_all_at_once():
    faults = LogConfig(retention_ms=-1, disk_warn_percent=96, delete_interval_ms=1, cold_cache_bytes=0).faults()
    assert len(faults) == 4


def test_a_group_skips_forward_over_what_is_gone(form):
    m = clocked(form)
    end = fill(m)
    delivery = Delivery(m.log, bytes(16), m.env.now_ms)

    def pull(count: int) -> int:
        answers = []
        request = PullRequest("group", [("first", 4)], b"key", count, 1 << 20, 0, 1000, 0, [])
        delivery.pull(request, m.env.clock_ms, answers.append)
        return answers[0].piece_count

    assert pull(1) == 1
    m.env.clock_ms += 80 * HOUR
    run(m)
    first = m.log.bounds(1, 0)[0]
    assert pull(10_000) == end - first
    assert delivery.groups["group"].topics[1][0].contiguous >= first


def test_a_clock_that_is_ahead_is_told_once_and_not_each_second(form, caplog):
    caplog.set_level(logging.WARNING)
    m = clocked(form)
    append(m, 1, 0, b"a")
    m.env.wall_shift_ms += HOUR
    run(m, seconds=30)
    told = [each.getMessage() for each in caplog.records if "3,600 s ahead" in each.getMessage()]
    assert 1 <= len(told) <= 2, told  # when it is noticed, and once per minute
