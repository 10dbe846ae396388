"""What the log answers to batches, and where it puts them."""

import errno

import pytest
from machine import NOW, SEGMENT

from engine.env.simulated import ProcessEnded
from engine.errors import (
    ClosedError,
    DiskFullError,
    EngineConfigError,
    NotStoredError,
    PartlyWrittenError,
    StoreDamagedError,
)


def test_offsets_of_a_queue_count_its_records_from_zero(any_machine):
    assert [any_machine.append(1, 0, b"a"), any_machine.append(1, 0, b"b", b"c"), any_machine.append(1, 0, b"d")] == [
        0,
        1,
        3,
    ]
    assert any_machine.append(1, 1, b"e") == 0
    assert any_machine.bodies(1, 0) == [b"a", b"b", b"c", b"d"]


def test_a_frame_of_many_batches_answers_each_by_itself(any_machine):
    m = any_machine
    frame = (
        m.batch(1, 0, [b"a"])
        + m.batch(9, 0, [b"b"])
        + m.batch(1, 4, [b"c"])
        + m.batch(2, 0, [b"dd", b"ee"])
        + m.batch(1, 0, [b"f"])
    )
    assert m.log.append(frame, 5, NOW) == [(0, 0), (102, 0), (100, 0), (0, 0), (0, 1)]
    assert m.bodies(1, 0) == [b"a", b"f"]
    assert m.bodies(2, 0) == [b"dd", b"ee"]


def test_a_batch_whose_size_lies_refuses_itself_and_what_follows(machine):
    good = machine.batch(1, 0, [b"a"])
    bad = bytearray(good)
    bad[4:8] = (1 << 30).to_bytes(4, "little")
    assert machine.log.append(good + bytes(bad) + good, 3, NOW) == [(0, 0), (100, 0), (100, 0)]
    assert machine.bodies(1, 0) == [b"a"]


@pytest.mark.parametrize(
    ("at", "data"),
    [
        *[(8, b"\0\0"), (10, b"\x01"), (10, b"\x09"), (11, b"\x01"), (24, b"\0\0\0\0"), (24, b"\x02"), (28, b"\x01")],
        *[(48, b"\xff"), (48, b"\x01"), (52, b"\x02"), (52, b"\x01")],
    ],
)  # fmt: skip
def test_a_malformed_batch_is_refused_and_nothing_of_it_is_written(machine, at, data):
    batch = bytearray(machine.batch(1, 0, [b"body"]))
    batch[at : at + len(data)] = data
    end = machine.log.end_position
    assert machine.log.append(bytes(batch), 1, NOW) == [(100, 0)]
    assert machine.log.end_position == end
    assert machine.append(1, 0, b"next") == 0


@pytest.mark.parametrize("size", [0, 1, 47])
def test_a_frame_shorter_than_its_count_is_refused(machine, size):
    assert machine.log.append(machine.batch(1, 0, [b"body"])[:size], 2, NOW) == [(100, 0), (100, 0)]


def test_a_batch_larger_than_a_segment_is_refused(machine):
    assert machine.log.append(machine.batch(1, 0, [bytes(SEGMENT)]), 1, NOW) == [(101, 0)]
    largest = SEGMENT - 64 - 48 - 5
    assert machine.log.append(machine.batch(1, 0, [bytes(largest)]), 1, NOW) == [(0, 0)]
    assert machine.bodies(1, 0) == [bytes(largest)]


def test_a_body_that_is_written_from_the_callers_bytes_reads_back(form, tmp_path):
    from machine import Machine

    from engine.env.real import RealEnv

    m = Machine(form, RealEnv(), str(tmp_path), segment_bytes=1 << 20)
    bodies = [bytes([i]) * (40_000 + i) for i in range(8)]
    frame = b"".join(m.batch(1, 0, [body]) + m.batch(1, 1, [b"small"]) for body in bodies)
    assert [code for code, _ in m.log.append(frame, 16, NOW)] == [0] * 16
    assert m.bodies(1, 0) == bodies
    m.reopen()
    assert m.bodies(1, 0) == bodies
    assert m.log.damage == []
    m.close()


def test_an_assigned_id_is_stored_in_front_of_its_message(machine):
    pack = machine.form.format
    batch = pack.pack_batch(0, 1, 0, [pack.pack_record(b"m\0", bytes(range(16)))])
    machine.log.append(batch, 1, NOW)
    (piece,) = machine.log.read(1, 0, 0, 10, 1000)
    assert piece.records == (19).to_bytes(4, "little") + b"\x01" + bytes(range(16)) + b"m\0"


def test_the_log_rolls_into_further_segments_and_reads_over_their_borders(any_machine):
    m = any_machine
    bodies = [b"%04d" % i * 20 for i in range(600)]
    for body in bodies:
        m.append(1, 2, body)
    assert m.log.end_position > 6 * SEGMENT
    assert m.bodies(1, 2) == bodies
    assert m.bodies(1, 2, 123, max_records=7) == bodies[123:]
    assert m.log.bounds(1, 2) == (0, 600)


def test_staged_batches_are_neither_readable_nor_woken_before_the_commit(machine):
    machine.log.watch(1, 0)
    assert machine.log.appender.append(machine.batch(1, 0, [b"a"]), 1, NOW, staged=True) == [(0, 0)]
    assert machine.log.read(1, 0, 0, 10, 1000) == []
    assert machine.log.bounds(1, 0) == (0, 0)
    assert machine.log.take_woken() == []
    machine.log.appender.commit_staged()
    assert machine.bodies(1, 0) == [b"a"]
    assert machine.log.take_woken() == [(1, 0)]


def test_a_watched_queue_wakes_once_until_it_is_armed_again(machine):
    for queue in range(4):
        machine.log.watch(1, queue)
    machine.append(1, 1, b"a")
    machine.append(1, 3, b"b")
    machine.append(1, 1, b"c")
    machine.append(2, 0, b"d")
    assert machine.log.take_woken() == [(1, 1), (1, 3)]
    assert machine.log.take_woken() == []
    machine.log.watch(1, 1)
    machine.append(1, 1, b"e")
    assert machine.log.take_woken() == [(1, 1)]


def test_thousands_of_watches_wake_exactly_those_that_were_written(machine):
    machine.log.create_topics([("wide", 5000)])
    for queue in range(5000):
        machine.log.watch(3, queue)
    for queue in range(0, 5000, 3):
        machine.log.appender.unwatch(3, queue)
    for queue in range(0, 5000, 7):
        machine.append(3, queue, b"x")
    assert machine.log.take_woken() == [(3, queue) for queue in range(0, 5000, 7) if queue % 3]


def test_topics_keep_their_ids_and_only_grow(any_machine):
    log = any_machine.log
    created = log.create_topics([("third", 2), ("first", 2), ("third", 5), ("second", 3)])
    assert [(topic.id, topic.queues) for topic in created] == [(3, 5), (1, 4), (3, 5), (2, 3)]
    log = any_machine.reopen()
    assert log.topic("third")[:3] == (3, "third", 5)
    assert log.topic_by_id(2)[:3] == (2, "second", 3)
    assert log.topic("fourth") is None and log.topic_by_id(4) is None
    assert [topic.name for topic in log.topics(after="first", limit=1)] == ["second"]
    assert [topic.name for topic in log.topics(prefix="th")] == ["third"]
    assert any_machine.append(2, 2, b"new queue") == 0


def test_a_topic_with_too_many_queues_is_refused(machine):
    with pytest.raises(EngineConfigError, match=r"1\.\.10000"):
        machine.log.create_topics([("wide", 10_001)])


def test_progress_is_the_latest_value_of_each_key(any_machine):
    log = any_machine.log
    log.put_progress([(b"group/a", b"1")])
    log.put_progress([(b"group/b", b"2"), (b"other", b"3"), (b"group/a", b"4")])
    log.checkpoint()
    log.put_progress([(b"group/b", b"")])
    assert list(log.progress(b"group/")) == [(b"group/a", b"4")]
    log = any_machine.reopen()
    assert list(log.progress()) == [(b"group/a", b"4"), (b"other", b"3")]


def test_progress_of_many_keys_is_few_batches_and_none_is_lost_where_a_segment_ends_between_them(any_machine):
    entries = [(b"group/%d" % number, b"value") for number in range(1000)]
    begin = any_machine.log.end_position
    any_machine.log.put_progress(entries)
    assert SEGMENT < any_machine.log.end_position - begin < 1000 * 32  # a batch alone is more than 48 bytes
    assert dict(any_machine.reopen().progress()) == dict(entries)


def test_topics_made_at_once_are_all_there_where_a_segment_ends_between_them(any_machine):
    made = any_machine.log.create_topics([(f"bulk/{number:04}", 2) for number in range(1000)])
    assert any_machine.log.end_position > 2 * SEGMENT
    log = any_machine.reopen()
    assert log.topics("bulk/") == made
    (later,) = log.create_topics([("later", 1)])
    assert later.id == made[-1].id + 1


def test_offset_at_time_finds_the_first_record_stored_then_or_later(any_machine):
    m = any_machine
    start = m.env.now_ms() + 1000
    for i in range(300):
        m.log.append(m.batch(1, 0, [b"x" * 50] * 2), 1, start + i // 2 * 10)
    for _ in range(2):
        log = m.reopen()
        assert log.offset_at_time(1, 0, 0) == 0
        assert log.offset_at_time(1, 0, start + 10) == 4
        assert log.offset_at_time(1, 0, start + 11) == 8
        assert log.offset_at_time(1, 0, start + 149 * 10) == 149 * 4
        assert log.offset_at_time(1, 0, start + 150 * 10) == 600


def test_a_full_disk_refuses_the_roll_and_the_log_goes_on_when_there_is_room(machine):
    machine.append(1, 0, b"x" * 5000)
    machine.env.fail("allocate", errno.ENOSPC)
    machine.log.writer.roller.prepared = None
    refused = machine.batch(1, 0, [b"y" * 5000])
    assert machine.log.append(refused, 1, NOW) == [(205, 0)]
    assert machine.append(1, 0, b"small") == 1
    machine.env.heal()
    machine.env.clock_ms += 1
    assert machine.append(1, 0, b"y" * 5000) == 2
    assert [len(body) for body in machine.bodies(1, 0)] == [5000, 5, 5000]
    machine.kill()
    assert [len(body) for body in machine.bodies(1, 0)] == [5000, 5, 5000]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_without_an_inode_quota_or_descriptor_for_the_next_segment_appends_are_refused_and_go_on_later(machine, error):
    machine.env.fail("create", error)
    bodies = [b"%d" % number * 3000 for number in range(6)]
    codes = [machine.log.append(machine.batch(1, 0, [body]), 1, NOW)[0][0] for body in bodies]
    assert codes[0] == 0 and codes[-1] == 205
    stored = codes.count(0)
    machine.reopen()
    assert machine.log.append(machine.batch(1, 0, [bodies[0]]), 1, NOW) == [(205, 0)]
    machine.env.heal()
    machine.env.clock_ms += 1
    assert machine.append(1, 0, b"later" * 600) == stored
    assert machine.bodies(1, 0) == [*bodies[:stored], b"later" * 600]


def test_a_start_on_a_full_disk_serves_and_continues_in_the_next_segment(machine):
    machine.append(1, 0, b"a")
    machine.log.writer.roller.prepared = None
    machine.log = None
    machine.env.end_process()
    prepared = [name for name in machine.env.files if name.endswith(".seg")][1:]
    for name in prepared:
        del machine.env.files[name]
    machine.env.fail("allocate", errno.ENOSPC)
    machine.open()
    assert machine.bodies(1, 0) == [b"a"]
    assert machine.log.append(machine.batch(1, 0, [b"b"]), 1, NOW) == [(205, 0)]
    machine.env.heal()
    machine.env.clock_ms += 1
    assert machine.append(1, 0, b"b") == 1
    assert machine.log.segments.active.base == SEGMENT
    machine.reopen()
    assert machine.bodies(1, 0) == [b"a", b"b"]
    assert machine.log.damage == []


def test_a_write_that_a_full_disk_refuses_leaves_no_trace(machine):
    machine.append(1, 0, b"a")
    machine.log.watch(1, 0)
    machine.env.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        machine.append(1, 0, b"b")
    machine.env.heal()
    assert machine.bodies(1, 0) == [b"a"]
    assert machine.append(1, 0, b"c") == 1
    machine.kill()
    assert machine.bodies(1, 0) == [b"a", b"c"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "a bad block"), StoreDamagedError("state", 0, 0, "a bad block")])
@pytest.mark.parametrize("unread", ["free_offset", "topic_by_id"])
def test_a_queue_that_the_view_cannot_read_refuses_its_batch_alone(form, tmp_path, error, unread):
    from machine import Machine

    from engine.env.real import RealEnv

    m = Machine(form, RealEnv(), str(tmp_path), segment_bytes=1 << 20)
    m.reopen()
    m.append(1, 0, b"a")

    def refuse(*_):
        raise error

    setattr(m.log._view, unread, refuse)
    frame = bytearray(m.batch(1, 0, [b"b" * 40_000]) + m.batch(2, 0, [b"c"]) + m.batch(1, 0, [b"d"]))
    assert m.log.append(frame, 3, NOW) == [(0, 1), (203, 0), (0, 2)]
    frame[:] = b"Z" * len(frame)  # a connection's buffer takes the next frame
    assert m.log.appender.unknown_batches == 1
    delattr(m.log._view, unread)
    assert m.append(2, 0, b"e") == 0
    assert m.bodies(1, 0) == [b"a", b"b" * 40_000, b"d"]
    assert m.bodies(2, 0) == [b"e"]
    m.close()


def test_an_error_in_the_middle_of_a_frame_takes_back_all_that_is_staged(form, tmp_path):
    from machine import Machine

    from engine.env.real import RealEnv

    m = Machine(form, RealEnv(), str(tmp_path), segment_bytes=1 << 20)
    m.reopen()
    m.append(1, 0, b"a")
    m.log.appender.append(m.batch(1, 0, [b"staged before"]), 1, NOW, staged=True)
    frame = bytearray(m.batch(1, 0, [b"b" * 40_000]) + m.batch(2, 0, [b"c"]))
    end = m.log.end_position

    def fail(*_):
        raise RuntimeError("a fault of the program")

    m.log._view.topic_by_id = fail
    with pytest.raises(NotStoredError, match="a fault of the program"):
        m.log.append(frame, 2, NOW)
    frame[:] = b"Z" * len(frame)
    del m.log._view.topic_by_id
    with pytest.raises(PartlyWrittenError):
        m.log.appender.commit_staged()  # the caller that staged before is told
    assert m.log.end_position == end
    assert m.append(1, 0, b"d") == 1
    assert m.bodies(1, 0) == [b"a", b"d"]
    m.close()


def test_an_error_after_a_part_of_a_frame_was_written_says_that_it_may_be_stored(machine):
    machine.append(1, 0, b"a")

    def fail(*_):
        raise RuntimeError("a fault of the program")

    machine.log.writer.roller.roll = fail
    with pytest.raises(PartlyWrittenError):
        machine.log.append(machine.batch(1, 0, [b"b"]) + machine.batch(1, 0, [b"c" * 8000]), 2, NOW)
    assert machine.bodies(1, 0) == [b"a", b"b"]
    assert machine.append(1, 0, b"d") == 2


def test_whoever_staged_hears_of_a_refused_write_that_another_caller_met(machine):
    machine.log.appender.append(machine.batch(1, 0, [b"a"]), 1, NOW, staged=True)
    machine.env.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        machine.log.put_progress([(b"k", b"v")])
    machine.env.heal()
    with pytest.raises(PartlyWrittenError):
        machine.log.appender.commit_staged()
    assert machine.log.bounds(1, 0) == (0, 0)
    assert list(machine.log.progress()) == []
    machine.log.appender.commit_staged()


def test_a_short_write_is_continued(machine):
    machine.env.write_bytes_max = 7
    machine.append(1, 0, b"a" * 100)
    machine.kill()
    assert machine.bodies(1, 0) == [b"a" * 100]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_or_sync_ends_the_process(machine, operation):
    machine.env.fail(operation, errno.EIO)
    with pytest.raises(ProcessEnded):
        machine.append(1, 0, b"a")
        machine.durable()
    assert "failed" in machine.env.death
    machine.log = None


def test_a_closed_log_refuses(machine):
    log = machine.log
    machine.close()
    with pytest.raises(ClosedError):
        log.append(machine.batch(1, 0, [b"a"]), 1, NOW)
    log.close()


def test_an_end_that_is_raised_is_shown_at_once(machine):
    machine.append(1, 3, b"m")
    while machine.log.appender.index.next_offset(1, 3) is not None:
        machine.append(1, 0, bytes(2000))
    assert machine.log.bounds(1, 3) == (0, 1)
    machine.log.raise_ends([(1, 3, 9)])
    assert machine.log.bounds(1, 3) == (0, 9)
    assert machine.append(1, 3, b"n") == 9
