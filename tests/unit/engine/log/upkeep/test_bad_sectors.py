"""Bad sectors that a start meets: in segments, in index files, in id files."""

import errno

import pytest
from failing_disk import FailingDisk
from machine import Machine

from engine.errors import CorruptionError, UnreadableError
from engine.log.format import KIND_TOPIC

SECTOR = 4096


@pytest.fixture
def machine(form):
    """A log of one segment with 100 messages of 200 bytes."""
    made = Machine(form, FailingDisk(), "/data", segment_bytes=1 << 16)
    for number in range(100):
        made.append(1, 0, b"%03d" % number * 66)
    yield made
    made.close()


def readable(machine, queue: int = 0, size: int = 3) -> list[int]:
    """Numbers of the messages that can be read, stepping over damage."""
    found, offset = [], 0
    end = machine.log.bounds(1, queue)[1]
    while offset < end:
        try:
            for piece in machine.log.read(1, queue, offset, 1000, 1 << 20):
                records = machine.form.format.split_records(piece.records)
                found += [int(record[:size]) for record in records]
                offset = piece.first_offset + piece.count
        except CorruptionError as damage:
            offset = damage.next_offset
    return found


def test_a_start_steps_over_a_sector_that_it_cannot_read(machine):
    machine.log = None
    machine.env.end_process()
    machine.env.bad["00000000000000000000.seg"] = 2 * SECTOR + 5
    log = machine.open()
    assert [damage.reason for damage in log.damage] and "cannot be read" in log.damage[0].reason
    found = readable(machine)
    assert 100 - 22 <= len(found) < 100
    assert found == sorted(found) and found[-1] == 99
    assert machine.append(1, 0, b"100") == 100


@pytest.mark.parametrize("sector", [2, 6])
def test_a_start_waits_up_to_a_minute_for_a_sector_and_loses_nothing_when_it_comes_back(machine, sector):
    machine.log = None
    machine.env.end_process()
    machine.env.bad["00000000000000000000.seg"] = sector * SECTOR + 5
    began_ms, pauses = machine.env.clock_ms, []

    def pause(ms: int) -> None:
        pauses.append(ms)
        machine.env.clock_ms += ms
        if machine.env.clock_ms - began_ms >= 30_000:
            machine.env.bad.clear()

    machine.env.pause = pause
    log = machine.open()
    assert pauses == [1000, 2000, 4000, 8000, 16_000] and log.damage == []
    assert readable(machine) == list(range(100))


def test_an_unreadable_index_file_is_made_again(machine):
    while len(machine.log.segments.sealed.bases) < 2:
        machine.append(1, 1, bytes(5000))
    machine.log.checkpoint()
    machine.reopen()
    machine.env.bad[".idx"] = 100
    assert readable(machine) == list(range(100))
    machine.close()
    for name in list(machine.env.stores):
        machine.env.stores.pop(name)  # the view is rebuilt from the index files
    machine.open()
    assert readable(machine) == list(range(100))


@pytest.fixture
def unread(machine):
    """A sealed segment of which the disk reads neither the index file nor a sector with messages."""
    while len(machine.log.segments.sealed.bases) < 2:
        machine.append(1, 1, bytes(5000))
    machine.log.checkpoint()
    machine.reopen()
    machine.env.bad[".idx"] = 100
    machine.env.bad["00000000000000000000.seg"] = 2 * SECTOR + 5
    with pytest.raises(UnreadableError):
        machine.log.read(1, 0, 0, 10, 1 << 20)
    return machine


def test_an_error_of_a_while_takes_nothing_out_of_an_index_file(unread):
    unread.env.bad.clear()
    with pytest.raises(UnreadableError, match="tried again soon"):
        unread.log.read(1, 0, 0, 10, 1 << 20)
    unread.env.clock_ms += 1_000
    assert readable(unread) == list(range(100))
    unread.reopen()
    assert readable(unread) == list(range(100))


def test_what_cannot_be_read_for_a_minute_is_stepped_over_and_comes_back_with_the_disk(unread):
    unread.env.clock_ms += 60_000
    assert 100 - 22 <= len(readable(unread)) < 100
    unread.reopen()
    unread.env.bad.clear()
    assert readable(unread) == list(range(100))


def test_an_unreadable_header_of_a_segment_costs_nothing_but_a_line(machine):
    while len(machine.log.segments.sealed.bases) < 2:
        machine.append(1, 1, bytes(5000))
    machine.log.checkpoint()
    machine.env.bad["00000000000000000000.seg"] = 3
    machine.reopen()
    assert readable(machine) == list(range(100))


def test_a_segment_whose_last_batch_cannot_be_read_is_sealed_nevertheless(machine):
    first = machine.log.segments.active
    read_at = first.file.read_at
    first.file.read_at = _refuse_above(read_at, 1 << 15)
    while len(machine.log.segments.sealed.bases) < 2:
        machine.append(1, 1, bytes(5000))
    machine.log.checkpoint()
    machine.reopen()
    assert readable(machine) == list(range(100))


def _refuse_above(read_at, limit: int):
    def read(size: int, at: int) -> bytes:
        if at + size > limit:
            raise OSError(errno.EIO, "Input/output error")
        return read_at(size, at)

    return read


def test_a_start_that_cannot_read_the_end_of_the_log_is_refused_and_loses_nothing(machine):
    machine.log = None
    machine.env.end_process()
    machine.env.bad["00000000000000000000.seg"] = 6 * SECTOR + 5  # the last of the messages
    with pytest.raises(CorruptionError, match="cannot read the end of the log"):
        machine.open()
    machine.env.bad.clear()
    machine.env.end_process()
    machine.open()
    assert readable(machine) == list(range(100))


def test_a_bad_sector_behind_the_end_of_the_log_does_not_matter(machine):
    machine.log = None
    machine.env.end_process()
    machine.env.bad["00000000000000000000.seg"] = 12 * SECTOR + 5
    machine.open()
    machine.env.bad.clear()
    assert readable(machine) == list(range(100))


@pytest.fixture(params=["before its messages", "in the segment before them"])
def grown(machine, request):
    """The log with a third topic, whose id no later topic may get; `at` is the address of the record of that topic.

    The next start has neither the view nor anything else that repeats the record.
    """
    entries = machine.log.segments.active.index.entries
    machine.log.create_topics([("third", 1)])
    machine.at = entries(0, KIND_TOPIC)[-1][1]
    if "before them" in request.param:
        roll(machine)
    machine.append(3, 0, b"of the third topic")
    roll(machine)
    machine.close()
    machine.env.stores.clear()
    return machine


def roll(machine) -> None:
    base = machine.log.appender.segment_base
    while machine.log.appender.segment_base == base:
        machine.append(1, 1, b"x" * 5000)


def lose(machine, how: str) -> None:
    path = "/data/log/00000000000000000000.seg"
    if how == "damaged":
        machine.damage(path, machine.at + 60, b"x")
    elif how == "header damaged":
        machine.damage(path, machine.at, bytes(48))
    else:
        machine.env.bad[path] = machine.at


@pytest.mark.parametrize("index", ["with", "without"])
@pytest.mark.parametrize("how", ["damaged", "header damaged", "unreadable"])
def test_the_id_of_a_topic_whose_record_is_lost_is_given_to_no_other_topic(grown, how, index):
    lose(grown, how)
    if index == "without":
        for path in [path for path in grown.env.files if path.endswith(".idx")]:
            del grown.env.files[path]
    log = grown.open()
    assert log.topic("third") is None and log.damage
    (made,) = log.create_topics([("other", 1)])
    grown.env.bad.clear()
    grown.reopen()  # an index of the whole segment is made now
    assert made.id > 3 and grown.log.bounds(made.id, 0) == (0, 0)


def test_a_topic_without_messages_whose_record_is_lost_keeps_its_id(machine):
    machine.log.create_topics([("third", 1), ("fourth", 1)])
    machine.at = machine.log.segments.active.index.entries(0, KIND_TOPIC)[-1][1]
    roll(machine)
    machine.close()
    machine.env.stores.clear()
    lose(machine, "unreadable")
    log = machine.open()
    assert [damage.reason for damage in log.damage] == ["a batch of topics cannot be read"]
    assert [topic.id for topic in log.create_topics([("other", 1)])] == [5]


def test_the_id_of_a_topic_in_an_unreadable_sector_of_the_active_segment_is_given_to_no_other_topic(machine):
    machine.log.create_topics([("third", 1)])
    machine.at = machine.log.segments.active.index.entries(0, KIND_TOPIC)[-1][1]
    for topic_id in (3, 1, 1, 1):
        machine.append(topic_id, 0, bytes(4000))
    machine.log = None
    machine.env.end_process()
    lose(machine, "unreadable")
    log = machine.open()
    assert log.topic("third") is None
    assert log.create_topics([("other", 1)])[0].id > 3


def test_the_report_of_an_unreadable_end_of_a_full_segment_covers_the_batch_that_begins_before_it(machine):
    roll(machine)
    machine.close()
    index = machine.form.index_file.read_index_header(machine.env, "/data/log", 0)
    machine.env.stores.clear()
    del machine.env.files["/data/log/00000000000000000000.idx"]
    machine.env.bad["00000000000000000000.seg"] = index.last_at + 4096 + 500
    first, second = machine.open().damage
    assert (first.position, first.reason) == (
        index.last_at, "1 sectors cannot be read: the end of a full segment does not verify"
    )  # fmt: skip
    assert (second.position, second.reason) == (first.position + first.bytes_lost, "the end cannot be read")


@pytest.fixture
def rolled(machine):
    """The log after a kill, with its last message as the only one of its second segment, whose name is `last`.

    The kill came before the checkpoint that follows a full segment, so both segments are replayed.
    """
    before = dict(machine.env.stores["/data/state"])
    roll(machine)
    machine.last, machine.count = machine.file().rpartition("/")[2], machine.log.bounds(1, 1)[1]
    machine.log = None
    machine.env.end_process()
    machine.env.stores["/data/state"] = before
    return machine


@pytest.mark.parametrize("at", [100, 4500], ids=["first sector", "second sector"])
def test_a_segment_whose_only_batch_cannot_be_read_is_not_taken_for_an_empty_one(rolled, at):
    rolled.env.bad[rolled.last] = at
    with pytest.raises(CorruptionError, match="cannot read the end of the log"):
        rolled.open()
    rolled.env.bad.clear()
    rolled.env.end_process()
    log = rolled.open()
    assert len(rolled.bodies(1, 1)) == rolled.count
    assert log.damage == []


def test_a_refused_start_takes_no_segment_for_full_whose_next_one_may_be_empty(machine):
    machine.append(1, 1, b"x" * 5000)
    machine.log = None
    machine.env.end_process()
    machine.env.stores.clear()
    prepared = sorted(path for path in machine.env.files if path.endswith(".seg"))[-1]
    machine.env.bad[prepared] = 100
    with pytest.raises(CorruptionError, match="cannot read the end of the log"):
        machine.open()
    machine.env.bad.clear()
    machine.env.end_process()
    log = machine.open()
    assert log.segments.active.base == 0
    assert log._view.span_of(1, 0, 0) is None


def test_a_start_waits_for_the_only_batch_of_the_last_segment(rolled):
    rolled.env.bad[rolled.last] = 100

    def pause(ms: int) -> None:
        rolled.env.clock_ms += ms
        rolled.env.bad.clear()

    rolled.env.pause = pause
    rolled.open()
    assert len(rolled.bodies(1, 1)) == rolled.count


def test_a_bad_sector_in_the_middle_of_an_empty_segment_does_not_matter(rolled):
    prepared = sorted(path for path in rolled.env.files if path.endswith(".seg"))[-1]
    assert not prepared.endswith(rolled.last)
    rolled.env.bad[prepared] = 3 * SECTOR + 5
    assert rolled.open().damage == []
    assert len(rolled.bodies(1, 1)) == rolled.count


def test_a_queue_goes_on_after_the_last_batch_of_a_full_segment_of_which_only_the_header_is_readable(machine):
    machine.append(1, 2, b"0")
    while machine.log.end_position < machine.config.segment_bytes - 2 * 5_100:
        machine.append(1, 1, b"x" * 5000)
    machine.append(1, 2, *[b"%d" % number * 1_500 for number in range(1, 4)])
    roll(machine)
    machine.close()
    last_at = machine.form.index_file.read_index_header(machine.env, "/data/log", 0).last_at
    machine.env.stores.clear()
    del machine.env.files["/data/log/00000000000000000000.idx"]
    machine.env.bad["00000000000000000000.seg"] = last_at + 4096
    machine.open()
    assert machine.append(1, 2, b"4") >= 4
    machine.env.bad.clear()
    machine.reopen()
    assert readable(machine, 2, size=1) == [0, 1, 2, 3, 4]
