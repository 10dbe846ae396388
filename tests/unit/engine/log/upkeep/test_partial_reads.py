"""What is written while the disk can read a segment only in part claims no more than was read."""

import errno
import logging
import re

import pytest
from checked import APPENDED, DUPLICATE, OK, batch
from machine import Machine

from engine.env.simulated import SimulatedEnv
from engine.errors import CorruptionError, OffsetOutOfRangeError, UnreadableError

HOUR = 3_600_000
FIRST = "/00000000000000000000.seg"


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


class Node:
    """A log whose messages are stored at the machine's time, and bytes that the disk cannot read."""

    def __init__(self, form, **settings) -> None:
        self.m = Machine(form, SimulatedEnv(), "/data", **{"retention_ms": 72 * HOUR, "start_wait_ms": 0} | settings)
        self.bad: list[tuple[str, int, int]] = []
        self.m.env.on_call = self._on_call

    def _on_call(self, operation: str, path: str, at: int, size: int) -> None:
        for suffix, start, end in self.bad:
            if operation == "read" and path.endswith(suffix) and at < end and start < at + size:
                raise OSError(errno.EIO, "Input/output error", path)

    def append(self, body: bytes, queue: int = 0) -> int:
        made = self.m.batch(1, queue, [body])
        ((code, offset),) = self.m.log.append(made, 1, self.m.env.now_ms())
        assert code == 0
        return offset

    def fill(self, segments: int = 1, hours: float = 0.0) -> None:
        """Append to queue 0 until the log has rolled so often."""
        base = self.m.log.appender.segment_base
        while self.m.log.appender.segment_base < base + segments * self.m.config.segment_bytes:
            self.append(bytes(500))
            self.m.env.clock_ms += round(hours * HOUR)

    def run(self, seconds: int = 10) -> None:
        until = self.m.env.clock_ms + seconds * 1000
        while self.m.env.clock_ms < until:
            self.m.env.clock_ms += self.m.log.retention.step()

    def lose(self, *suffixes: str) -> None:
        for path in [path for path in self.m.env.files if path.endswith(suffixes)]:
            del self.m.env.files[path]

    def restart(self, *lost: str, kill: bool = False) -> None:
        if kill:
            self.m.log = None
            self.m.env.end_process()
        else:
            self.m.close()
        self.lose(*lost)
        self.m.open()

    @property
    def deleted(self) -> int:
        return self.m.log.retention.deleted_segments


# The time at which a segment was created


@pytest.fixture
def days(form):
    """A node with a segment that was filled in about seventy hours, and a second one."""
    node = Node(form, segment_bytes=1 << 14)
    node.began_ms = node.m.env.clock_ms
    node.fill(hours=2.4)
    node.ended_ms = node.m.env.clock_ms - round(2.4 * 2 * HOUR)
    node.fill(2)
    node.m.log.checkpoint()
    return node


def advance_to(node: Node, ms: int) -> None:
    node.m.env.clock_ms = max(ms, node.m.env.clock_ms)
    node.run(3)


def test_a_segment_whose_last_message_cannot_be_read_is_not_as_old_as_its_header(days):
    node, at = days, days.m.log.segments.sealed.get(0).source().entries(1, 0)[-1][1]
    node.bad = [(FIRST, at, at + 48)]
    node.run(3)
    advance_to(node, node.began_ms + 90 * HOUR)
    node.m.log.retention.accept_clock()
    node.run(3)
    assert node.deleted == 0
    advance_to(node, node.ended_ms + 80 * HOUR)
    node.m.log.retention.accept_clock()
    node.run(3)
    assert node.deleted >= 1


@pytest.mark.parametrize("how", ["unreadable", "damaged"])
def test_a_segment_without_its_header_is_as_old_as_its_last_message(days, how):
    node = days
    if how == "unreadable":
        node.bad = [(FIRST, 0, 64)]
    else:
        node.m.close()
        node.m.damage(f"/data/log{FIRST}", 20, b"damage")
        node.m.open()
    node.restart()
    advance_to(node, node.ended_ms + 71 * HOUR)
    assert node.deleted == 0
    assert node.m.log.retention.earliest_ms <= node.began_ms
    advance_to(node, node.ended_ms + 76 * HOUR)
    node.m.log.retention.accept_clock()
    node.run(3)
    assert node.deleted >= 1


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("how", ["unreadable", "damaged"])
def test_an_index_that_is_made_without_the_header_has_the_times_of_its_messages(days, how, state):
    node = days
    if state:
        node.m.env.stores.clear()
    if how == "unreadable":
        node.bad = [(FIRST, 0, 64)]
    else:
        node.m.damage(f"/data/log{FIRST}", 20, b"damage")
    node.restart(".idx")
    for hours in (0, 10, 20, 40):
        found = node.m.log.offset_at_time(1, 0, node.began_ms + hours * HOUR)
        assert abs(found - hours / 2.4) <= 1
    node.bad = []
    node.restart()
    for hours in (0, 10, 20, 40):
        found = node.m.log.offset_at_time(1, 0, node.began_ms + hours * HOUR)
        assert abs(found - hours / 2.4) <= 1
    node.m.close()
    index = node.m.form.index_file.read_index_header(node.m.env, "/data/log", 0)
    assert abs(index.created_ms - node.began_ms) <= HOUR


# The checksum of the last batch


@pytest.mark.parametrize("after_start", [False, True])
def test_a_batch_that_cannot_be_read_while_its_segment_is_sealed_is_protected_by_its_index(form, after_start):
    node = Node(form)
    offset = node.append(b"last of its queue" * 20, queue=3)
    if after_start:
        node.m.kill()
    base = node.m.log.appender.segment_base
    at = node.m.log.appender.index.locate(1, 3, offset)
    while node.m.log.appender.segment_base == base:
        node.bad = [(FIRST, node.m.log.appender.last_at, 1 << 20)]
        node.append(bytes(500))
    last = node.bad[0][1]
    node.bad = []
    node.m.log.checkpoint()
    index = node.m.form.index_file.read_index_header(node.m.env, "/data/log", 0)
    crc = int.from_bytes(node.m.env.files[f"/data/log{FIRST}"].seen[last : last + 4], "little")
    assert (index.last_at, index.last_crc) == (last, crc)
    assert at < last


def test_offsets_of_a_damaged_last_batch_are_not_given_out_again_after_a_seal_that_could_not_read_it(form):
    node = Node(form)
    base = node.m.log.appender.segment_base
    node.bad = [(FIRST, 7000, 1 << 20)]
    count = 0
    while node.m.log.appender.segment_base == base:
        node.append(b"%03d" % count * 100, queue=count % 4)
        count += 1
    node.m.log.checkpoint()
    node.bad = []
    last = node.m.form.index_file.read_index_header(node.m.env, "/data/log", 0).last_at
    queue = (count - 2) % 4
    end = node.m.log.segments.at(0).source().entries(1, queue)[-1][0] + 1
    node.m.close()
    node.m.damage(f"/data/log{FIRST}", last + 200, b"damage")
    node.m.env.stores.clear()
    node.m.open()
    assert node.m.log.bounds(1, queue)[1] >= end


# What the view is told of a segment


@pytest.fixture
def partial(form):
    """A full segment that the next start has to scan, and cannot read at the first messages of two queues."""
    node = Node(form)
    node.m.log.checkpoint()
    node.append(b"a", queue=1)
    node.append(b"b", queue=2)
    first = node.m.log.appender.index.locate(1, 1, 0)
    while node.m.log.appender.last_at < 4096:
        node.append(bytes(500))
    node.append(b"c", queue=2)
    node.m.env.fail("store", errno.EIO)  # so that the checkpoint stays
    node.fill()
    node.append(b"d", queue=1)
    node.bad = [(FIRST, first, first + 1)]
    node.restart(".idx", kill=True)
    return node


def test_what_a_start_could_not_read_is_there_at_a_later_start_that_can(partial):
    node = partial
    assert node.m.log.damage
    node.fill(2)
    node.m.log.checkpoint()
    node.restart()
    with pytest.raises(UnreadableError):
        node.m.log.read(1, 2, 1, 10, 1000)
    node.m.env.clock_ms += 60_000
    assert node.m.bodies(1, 2, 1) == [b"c"]
    with pytest.raises((CorruptionError, OffsetOutOfRangeError)):
        node.m.log.read(1, 2, 0, 10, 1000)
    node.bad = []
    node.restart()
    node.m.kill()  # what the start has written is durable
    assert node.m.bodies(1, 1) == [b"a", b"d"]
    assert node.m.bodies(1, 2) == [b"b", b"c"]
    assert {key[9:] for key in node.m.env.stores["/data/state"] if key[:9] == b"q\0\0\0\1\0\0\0\2"} == {bytes(8)}


def test_what_a_start_could_not_read_is_there_when_the_segment_is_opened_again(partial):
    node = partial
    node.bad = []
    assert node.m.bodies(1, 2, 1) == [b"c"]
    assert node.m.bodies(1, 2) == [b"b", b"c"]
    node.restart()
    assert node.m.bodies(1, 1) == [b"a", b"d"]


def test_a_queue_that_has_begun_again_in_a_later_segment_stays_there(partial):
    node = partial
    node.bad = []
    sealed = node.m.log.segments.sealed.get(0)
    key = node.m.form.view.queue_key(1, 2, 1)
    node.m.log._view.store.write([(key, node.m.form.view.queue_value(8192, 5))])
    node.m.form.sealer.correct_directory(node.m.log._view, sealed)
    assert node.m.log._view.store.get(key) == node.m.form.view.queue_value(8192, 5)


def test_a_full_segment_whose_end_cannot_be_read_counts_as_one_with_lost_headers(form):
    node = Node(form)
    node.m.env.fail("store", errno.EIO)
    node.fill()
    node.append(b"x")
    node.bad = [(FIRST, 7000, 8192)]
    node.restart(".idx", kill=True)
    assert node.m.log.headers_lost


# Checked ids


def send(node: Node, shown: bytes) -> int:
    made = batch(node.m, 0, shown, HOUR, body=bytes(300))
    return APPENDED.unpack(node.m.log.appender.append_results(made, 1, node.m.env.now_ms()))[0]


@pytest.mark.parametrize("when", ["sealed", "made again"])
def test_ids_that_could_not_be_read_are_known_again_after_a_start_that_can(form, when):
    node = Node(form)
    unread = [(FIRST, 4096, 4097)]
    if when == "sealed":
        node.bad = unread
    for number in range(40):
        assert send(node, b"id-%d" % number) == OK
    node.m.log.checkpoint()
    if when != "sealed":
        node.bad = unread
        node.restart(".dup")
    else:
        assert not node.m.env.exists("/data/log/00000000000000000000.dup")
    node.bad = []
    node.restart()
    assert [send(node, b"id-%d" % number) for number in range(40)] == [DUPLICATE] * 40
    assert node.m.env.exists("/data/log/00000000000000000000.dup")


@pytest.mark.parametrize("lost", [(".dup",), (".dup", ".idx")])
@pytest.mark.parametrize("at", [4096, 8000])
def test_a_start_waits_for_ids_that_the_disk_cannot_read(form, at, lost):
    node = Node(form, start_wait_ms=60_000)
    for number in range(40):
        assert send(node, b"id-%d" % number) == OK
    node.m.log.checkpoint()
    node.bad, pauses = [(FIRST, at, at + 1)], []

    def pause(ms: int) -> None:
        pauses.append(ms)
        node.bad = []

    node.m.env.pause = pause
    node.restart(*lost)
    assert pauses == [1000]
    assert [send(node, b"id-%d" % number) for number in range(40)] == [DUPLICATE] * 40


@pytest.mark.parametrize("at", [5000, 16_000])
def test_a_start_names_the_bytes_whose_ids_the_disk_cannot_read(form, caplog, at):
    node = Node(form, segment_bytes=1 << 14)
    for number in range(60):
        assert send(node, b"id-%02d" % number) == OK
    node.m.log.checkpoint()
    node.bad = [(FIRST, at, at + 1)]
    with caplog.at_level(logging.ERROR):
        node.restart(".dup")
    answers = [send(node, b"id-%02d" % number) for number in range(60)]
    (line,) = [each.getMessage() for each in caplog.records if "unknown" in each.getMessage()]
    named = re.match(r"file=(\S+) position=(\d+): the ids in (\d+) bytes are unknown", line)
    position, size = int(named[2]), int(named[3])
    unread = bytes(node.m.env.files[named[1]].seen[position : position + size])
    assert [b"id-%02d" % number in unread for number in range(60)] == [answer == OK for answer in answers]
    assert 10 < answers.count(OK) < 20


def test_a_start_that_reads_neither_the_header_nor_the_index_of_a_segment_with_ids_serves(form):
    node = Node(form)
    for number in range(40):
        assert send(node, b"id-%d" % number) == OK
    node.m.log.checkpoint()
    node.bad = [(FIRST, 0, 64)]
    node.restart(".idx")
    assert [send(node, b"id-%d" % number) for number in range(40)] == [DUPLICATE] * 40


def test_a_start_waits_for_a_header_that_it_cannot_read(form):
    node = Node(form, start_wait_ms=60_000)
    node.fill(2)
    node.m.log.checkpoint()
    node.bad, pauses = [(".seg", 0, 64)], []

    def pause(ms: int) -> None:
        pauses.append(ms)
        node.m.env.clock_ms += ms
        node.bad = []

    node.m.env.pause = pause
    node.restart(".idx")
    assert pauses == [1000]
    assert not node.m.log.segments.sealed.get(0).is_header_made
