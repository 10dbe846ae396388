"""Slices of batches, limits, bounds, and the checks that stand in front of every byte served."""

import errno

import pytest
from machine import NOW

from engine.errors import OffsetOutOfRangeError, UnknownTopicError, UnreadableError


def test_a_read_may_begin_and_end_inside_a_batch(any_machine):
    m = any_machine
    m.append(1, 0, b"a", b"b", b"c")
    m.append(1, 0, b"d", b"e")
    shapes = [(p.first_offset, p.count) for p in m.log.read(1, 0, 1, 3, 1000)]
    assert shapes == [(1, 2), (3, 1)]
    for offset in range(5):
        for records in range(1, 6):
            got = m.log.read(1, 0, offset, records, 1000)
            assert sum(piece.count for piece in got) == min(records, 5 - offset)
            assert m.bodies(1, 0, offset, records) == [b"a", b"b", b"c", b"d", b"e"][offset:]


def test_bytes_bound_a_read_but_never_starve_it(machine):
    for _ in range(3):
        machine.append(1, 0, b"x" * 95, b"y" * 95)
    record = 100
    for size, expected in [
        (0, 1),
        (1, 1),
        (record, 1),
        (2 * record - 1, 1),
        (2 * record, 2),
        (3 * record, 3),
        (5 * record + 99, 5),
    ]:
        got = machine.log.read(1, 0, 0, 100, size)
        assert sum(piece.count for piece in got) == expected, size
    assert machine.log.read(1, 0, 0, 0, 1000) == []


def test_the_end_of_a_queue_reads_as_nothing_and_beyond_is_out_of_range(any_machine):
    any_machine.append(1, 0, b"a")
    assert any_machine.log.read(1, 0, 1, 10, 1000) == []
    assert any_machine.log.read(1, 1, 0, 10, 1000) == []
    for offset in (2, -1, 1 << 63, 1 << 70):
        with pytest.raises(OffsetOutOfRangeError, match=r"0\.\.1"):
            any_machine.log.read(1, 0, offset, 10, 1000)


@pytest.mark.parametrize(("topic_id", "queue"), [(3, 0), (1, 4), (0, 1)])
def test_unknown_topics_and_queues_are_refused(machine, topic_id, queue):
    for call in (
        machine.log.bounds,
        lambda *key: machine.log.read(*key, 0, 1, 1),
        lambda *key: machine.log.offset_at_time(*key, 0),
    ):
        with pytest.raises(UnknownTopicError):
            call(topic_id, queue)


def test_pieces_carry_the_time_that_their_batch_was_stored(machine):
    machine.log.append(machine.batch(1, 0, [b"a", b"b"]), 1, NOW + 5)
    machine.log.append(machine.batch(1, 0, [b"c"]), 1, NOW + 9)
    assert [(p.count, p.stored_at_ms) for p in machine.log.read(1, 0, 0, 10, 1000)] == [(2, NOW + 5), (1, NOW + 9)]


def test_many_small_batches_close_together_read_back_in_one_go(any_machine):
    bodies = [b"%05d" % i for i in range(400)]
    for body in bodies:
        any_machine.append(1, 0, body)
        any_machine.append(1, 1, body * 3)
    assert any_machine.bodies(1, 0) == bodies
    assert any_machine.bodies(1, 1) == [body * 3 for body in bodies]


def test_a_failing_disk_is_an_error_of_the_read_and_not_the_end(machine):
    machine.append(1, 0, b"a")
    machine.env.fail("read", errno.EIO)
    with pytest.raises(UnreadableError):
        machine.log.read(1, 0, 0, 1, 1)
    machine.env.heal()
    machine.env.clock_ms += 1000
    assert machine.bodies(1, 0) == [b"a"]


def test_few_open_segments_suffice_for_readers_of_many(form, tmp_path):
    from machine import Machine

    from engine.env.real import RealEnv

    m = Machine(form, RealEnv(), str(tmp_path), segment_bytes=4096, sealed_open_max=2)
    bodies = [b"%04d" % i * 50 for i in range(200)]
    for body in bodies:
        m.append(1, 0, body)
    m.reopen()
    for offset in [*range(0, 200, 17), *range(199, 0, -13)]:
        (piece,) = m.log.read(1, 0, offset, 1, 1)
        assert bodies[offset] in piece.records
    m.close()


def test_counters_that_left_memory_are_found_again(form):
    from machine import Machine

    from engine.env.simulated import SimulatedEnv

    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=4096, counters_max=0)
    m.log.create_topics([("wide", 50)])
    for round_ in range(20):
        for queue in range(50):
            assert m.append(3, queue, b"%d" % round_ * 10) == round_
    assert len(m.log.appender.older) <= 1
    assert all(m.log.bounds(3, queue) == (0, 20) for queue in range(50))
