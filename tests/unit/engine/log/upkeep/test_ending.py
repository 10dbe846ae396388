"""A start that can read a segment only in part uses no offset again of a message that it could not read."""

import errno

import pytest
from failing_disk import FailingDisk
from machine import NOW, Machine

from engine.errors import CorruptionError, DiskFullError

FIRST = "00000000000000000000.seg"


@pytest.fixture(params=["last segment", "full segment"])
def machine(form, request):
    """After a kill, with a bad sector under the last messages of queues 0 and 3; queue 1 goes on after it."""
    made = Machine(form, FailingDisk(), "/data", segment_bytes=1 << 16)
    before = dict(made.env.stores["/data/state"])
    made.append(1, 0, b"0")
    for _ in range(3):
        made.append(1, 1, bytes(4000))
    bad_at = made.log.end_position
    for queue, number in ((0, b"1"), (0, b"2"), (3, b"0")):
        made.append(1, queue, number)
    for _ in range(3 if request.param == "last segment" else 15):
        made.append(1, 1, bytes(4000))
    made.log = None
    made.env.end_process()
    made.env.stores["/data/state"] = before
    made.env.files.pop(f"/data/log/{FIRST}".replace(".seg", ".idx"), None)
    made.env.bad[FIRST] = bad_at + 100
    yield made
    made.close()


def numbers(machine, queue: int) -> list[int]:
    """Numbers of the queue's messages that can be read, stepping over what is lost."""
    found, offset = [], 0
    while offset < machine.log.bounds(1, queue)[1]:
        try:
            for piece in machine.log.read(1, queue, offset, 1000, 1 << 20):
                found += map(int, machine.form.format.split_records(piece.records))
                offset = piece.first_offset + piece.count
        except CorruptionError as lost:
            offset = lost.next_offset
    return found


def store_and_heal(machine) -> None:
    """Append to the queues that lost their ends; the next start can read everything, in order."""
    assert machine.append(1, 0, b"3") >= 3 and machine.append(1, 3, b"1") >= 1
    machine.env.bad.clear()
    machine.reopen()
    assert numbers(machine, 0) == [0, 1, 2, 3]
    assert numbers(machine, 3) == [0, 1]


def test_what_is_stored_meanwhile_comes_after_what_is_read_again_later(machine):
    machine.open()
    assert machine.log.damage and machine.log.headers_lost
    assert [machine.log.bounds(1, queue)[1] for queue in (0, 3)] == [1, 0]
    store_and_heal(machine)


def test_a_later_start_remembers_it_when_it_does_not_read_the_segment_again(machine):
    machine.open()
    machine.append(1, 1, b"new")
    for _ in range(2):
        machine.log.checkpoint()
        machine.reopen()
    assert machine.log.damage == []
    store_and_heal(machine)


def test_a_queue_with_a_batch_after_the_bytes_goes_on_without_a_gap(machine):
    machine.open()
    end = machine.log.bounds(1, 1)[1]
    assert machine.append(1, 1, b"new") == end


def test_queues_of_later_topics_begin_at_zero(machine):
    machine.open()
    (topic,) = machine.log.create_topics([("third", 1)])
    assert machine.append(topic.id, 0, b"0") == 0


def test_a_gap_appears_once(machine):
    machine.open()
    first = machine.append(1, 0, b"3")
    machine.reopen()
    while machine.log.segments.active.index.next_offset(1, 0) is not None:
        machine.append(1, 1, bytes(4000))
    assert machine.append(1, 0, b"4") == first + 1


def test_a_queue_goes_on_without_a_gap_once_the_segment_is_read_as_a_whole(machine):
    machine.open()
    machine.env.bad.clear()
    machine.reopen()
    assert machine.append(1, 0, b"3") == 3 and machine.append(1, 3, b"1") == 1


def test_what_was_noted_of_a_deleted_segment_is_dropped(machine):
    machine.open()
    machine.log._view.put_unread(5 << 16, 7)
    machine.log._view.put_whole(5 << 16, [(1, 0)])
    machine.reopen()
    assert machine.log._view.unread_segments() == [0]
    assert list(machine.log._view.store.scan(b"v" + bytes(7) + b"\x05", b"w")) == []


@pytest.mark.parametrize("machine", ["last segment"], indirect=True)
def test_without_room_for_the_next_segment_the_start_is_refused_and_changes_nothing(machine):
    (prepared,) = [path for path in machine.env.files if path.endswith(".seg") and not path.endswith(FIRST)]
    del machine.env.files[prepared]

    def refuse(operation: str, path: str, at: int, size: int) -> None:
        if operation == "allocate" and path.endswith(".seg.tmp"):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    machine.env.on_call = refuse
    with pytest.raises(DiskFullError, match="no room for a segment"):
        machine.open()
    machine.env.on_call = None
    machine.env.bad.clear()
    machine.env.end_process()
    machine.open()
    assert numbers(machine, 0) == [0, 1, 2]


@pytest.mark.parametrize("machine", ["last segment"], indirect=True)
def test_a_segment_that_was_left_is_written_again_when_nothing_follows_it_and_it_can_be_read(machine):
    machine.open()
    machine.kill()
    machine.env.bad.clear()
    log = machine.kill()
    assert log.segments.active.base == 0 and log._view.unread_segments() == []
    assert machine.append(1, 0, b"3") == 3
    for _ in range(15):
        machine.append(1, 1, bytes(4000))
    machine.reopen()
    assert numbers(machine, 0) == [0, 1, 2, 3]


@pytest.mark.parametrize("machine", ["last segment"], indirect=True)
def test_a_look_up_by_time_finds_messages_before_a_segment_that_was_left_and_is_written_again(machine):
    machine.env.bad.clear()
    machine.open()
    while machine.log.appender.segment_base == 0:
        machine.append(1, 1, bytes(4000))
    bad_at = machine.log.end_position - machine.log.appender.segment_base
    for later, queue in ((1000, 2), (2000, 0), (3000, 1)):
        ((code, _),) = machine.log.append(machine.batch(1, queue, [bytes(1000)] * 4), 1, NOW + later)
        assert code == 0
    machine.env.bad["00000000000000065536.seg"] = bad_at + 100
    log = machine.kill()
    assert log.segments.active.base == 2 << 16
    machine.env.bad.clear()
    log = machine.kill()
    assert log.segments.active.base == 1 << 16
    assert [log.offset_at_time(1, 0, at_ms) for at_ms in (0, NOW, NOW + 1, NOW + 2001)] == [0, 0, 3, 7]


@pytest.mark.parametrize("machine", ["last segment"], indirect=True)
def test_a_segment_that_was_left_and_is_written_again_keeps_the_ends_of_its_queues(machine):
    """The start that left it could not read the first batches of queues, so it knew them from a later offset on."""
    machine.env.bad.clear()
    machine.open()
    while machine.log.appender.segment_base == 0:
        machine.append(1, 1, bytes(4000))
    bad_at = machine.log.end_position - machine.log.appender.segment_base
    machine.append(1, 2, b"0")
    machine.append(1, 1, bytes(8000))
    machine.append(1, 2, b"1")
    machine.env.bad["00000000000000065536.seg"] = bad_at + 20
    assert machine.kill().segments.active.base == 2 << 16
    machine.env.bad.clear()
    assert machine.kill().segments.active.base == 1 << 16
    for number in (b"2", b"3"):
        machine.append(1, 2, number)
    while machine.log.appender.segment_base == 1 << 16:
        machine.append(1, 1, bytes(4000))
    machine.log.checkpoint()
    machine.reopen()
    assert machine.append(1, 2, b"4") == 4
    assert numbers(machine, 2) == [0, 1, 2, 3, 4]


def test_what_can_be_read_is_served_at_once(machine):
    machine.open()
    assert machine.bodies(1, 0) == [b"0"]


def test_a_look_up_by_time_finds_messages_before_and_after_a_gap(machine):
    machine.open()
    ((code, offset),) = machine.log.append(machine.batch(1, 0, [b"3"]), 1, NOW + 1000)
    assert code == 0 and offset > 100
    machine.log.raise_ends([(1, 3, 5)])
    ((code, later),) = machine.log.append(machine.batch(1, 3, [b"5"]), 1, NOW + 1000)
    while machine.log.appender.index.next_offset(1, 0) is not None:
        machine.append(1, 1, bytes(4000))
    machine.log.checkpoint()
    assert [machine.log.offset_at_time(1, 0, NOW + by) for by in (0, 1, 1000, 1001)] == [0, offset, offset, offset + 1]
    assert [machine.log.offset_at_time(1, 3, NOW + by) for by in (0, 1000, 1001)] == [later, later, later + 1]
