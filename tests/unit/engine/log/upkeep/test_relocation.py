"""Segments that have to go while what they alone hold cannot be stored again: they stay, and nothing is lost."""

import contextlib
import errno
import logging

import pytest
from machine import Machine

from engine.env.simulated import ProcessEnded, SimulatedEnv
from engine.errors import DiskFullError
from engine.log.upkeep import relocation

GIB = 1 << 30


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


class Node:
    """A log with three full segments; the first one has the only records of topics, progress and an idle queue."""

    def __init__(self, form, progress: int = 1) -> None:
        self.m = Machine(form, SimulatedEnv(), "/data")
        self.append(b"idle", topic_id=2)
        for number in range(progress):
            self.m.log.put_progress([(b"group-%d" % number, b"%d" % number * 20)])
        base = self.m.log.appender.segment_base
        while self.m.log.appender.segment_base < base + 3 * self.m.config.segment_bytes:
            self.append(bytes(500))
        self.m.log.checkpoint()
        self.progress = dict(self.m.log.progress(b"group"))

    def append(self, body: bytes, topic_id: int = 1) -> None:
        made = self.m.batch(topic_id, 0, [body])
        ((code, _),) = self.m.log.append(made, 1, self.m.env.now_ms())
        if code:
            raise DiskFullError("a code of the append")

    def fill_disk(self, operation: str = "write", error: int = errno.ENOSPC) -> None:
        self.m.env.fail(operation, error)
        self.m.env.disk_used, self.m.env.disk_free = 92 * GIB, 8 * GIB

    def make_room(self) -> None:
        """There is room again, but not so much that nothing would have to go."""
        self.m.env.heal()

    def run(self, seconds: int = 10, timers=None) -> None:
        until = self.m.env.clock_ms + seconds * 1000
        while self.m.env.clock_ms < until:
            self.m.env.clock_ms += self.m.log.retention.step(timers)

    @property
    def deleted(self) -> int:
        return self.m.log.retention.deleted_segments

    def assert_log_has_all(self) -> None:
        """The log alone, without the view, has everything that the first segment held."""
        self.m.env.heal()
        self.m.close()
        self.m.env.stores.clear()
        self.m.open()
        assert [topic[:3] for topic in self.m.log.topics()] == [(1, "first", 4), (2, "second", 1)]
        assert dict(self.m.log.progress(b"group")) == self.progress
        assert self.m.log.bounds(2, 0)[1] == 1


def test_a_segment_that_cannot_be_relocated_on_a_full_disk_stays_and_sends_are_refused(form):
    node = Node(form)
    node.fill_disk()
    node.run()
    assert node.deleted == 0
    assert "has to go, and what it alone holds cannot be stored again" in node.m.log.retention.health
    node.m.env.heal()
    with pytest.raises(DiskFullError, match="nothing was stored"):
        node.append(b"x")
    node.run()
    assert node.deleted >= 3
    assert node.m.log.retention.health is True
    node.append(b"x")
    node.assert_log_has_all()


def test_a_segment_stays_also_when_progress_has_taken_the_last_room(form):
    node = Node(form)
    node.m.env.fail("allocate", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        for _ in range(1000):  # what is left of the active segment, and the one that was made ahead
            node.m.log.put_progress([(b"filler", bytes(500))])
    node.m.log.checkpoint()
    node.fill_disk("allocate")
    node.run()
    assert node.deleted == 0
    node.m.env.heal()
    node.run()
    assert node.deleted >= 3
    node.assert_log_has_all()


def test_what_is_left_of_the_last_segment_for_which_there_is_space_is_not_for_sends(form):
    node = Node(form)
    node.fill_disk("allocate")
    node.m.env.disk_used, node.m.env.disk_free = 0, GIB
    base = node.m.log.appender.segment_base
    with pytest.raises(DiskFullError, match="no room for a segment of 8192 bytes: No space left"):
        for _ in range(100):
            node.append(bytes(500))
            node.run(1)
    assert node.m.log.appender.segment_base == base + node.m.config.segment_bytes
    assert "no room for a segment" in node.m.log.retention.health
    node.fill_disk("allocate")
    node.run()
    assert node.deleted >= 3, "the room is enough for what they held"
    node.assert_log_has_all()
    node.run()
    node.append(b"x")
    assert node.m.log.retention.health is True


def test_sends_go_on_while_no_next_segment_can_be_made_for_lack_of_descriptors(form):
    node = Node(form)
    node.m.env.fail("create", errno.EMFILE)
    base = node.m.log.appender.segment_base
    while node.m.log.appender.segment_base == base:
        node.append(bytes(500))
    node.run()
    node.append(bytes(500))


def test_sends_go_on_once_there_is_space_for_a_next_segment(form):
    node = Node(form)
    node.m.env.fail("allocate", errno.ENOSPC)
    base = node.m.log.appender.segment_base
    while node.m.log.appender.segment_base == base:
        node.append(bytes(500))
    node.run(2)
    with pytest.raises(DiskFullError):
        node.append(bytes(500))
    node.m.env.heal()
    node.m.env.disk_free = node.m.config.segment_bytes  # no more is tried before there is more than this
    node.run(2)
    with pytest.raises(DiskFullError):
        node.append(bytes(500))
    node.m.env.disk_free = 1 << 50
    node.run(2)
    node.append(bytes(500))


def test_what_a_segment_holds_is_in_the_log_while_it_is_kept(form):
    node = Node(form)
    node.fill_disk()
    node.run()
    node.assert_log_has_all()


def test_a_write_error_while_a_segment_is_relocated_ends_the_process_before_anything_is_deleted(form):
    node = Node(form)
    node.fill_disk(error=errno.EIO)
    with pytest.raises(ProcessEnded):
        node.run()
    assert node.m.file(at=0).endswith("00000000000000000000.seg")
    node.m.kill()
    node.assert_log_has_all()


def test_a_relocation_that_continues_does_not_append_again_what_it_has_appended(form, monkeypatch):
    node = Node(form, progress=60)
    control, room, stored = node.m.log.writer.control, [40], []
    append = type(control).append

    def limited(self, kind, payloads, *rest):
        if payloads and room[0] <= 0:
            raise DiskFullError("no room")
        room[0] -= len(payloads)
        stored.extend(payloads)
        return append(self, kind, payloads, *rest)

    monkeypatch.setattr(type(control), "append", limited)
    node.fill_disk("never")
    node.run()
    assert node.deleted == 0 and 40 <= len(stored) < 60
    room[0] = 1000
    node.run()
    assert node.deleted >= 3
    own = [payload for payload in stored if b"group-" in payload]
    assert len(own) == len(set(own)) == 60
    monkeypatch.undo()
    node.assert_log_has_all()


class Timers:
    """Delayed messages that a full disk keeps in their segment."""

    def __init__(self) -> None:
        self.refuses, self.forgotten = True, []

    def relocate(self, base: int):
        if self.refuses:
            raise DiskFullError("no space for 1 copies of delayed messages")
        yield

    def forget(self, base: int) -> None:
        self.forgotten.append(base)


def test_a_segment_with_delayed_messages_that_cannot_be_relocated_stays_and_sends_are_refused(form):
    node, timers = Node(form), Timers()
    node.fill_disk("never")
    node.run(timers=timers)
    assert node.deleted == 0
    with pytest.raises(DiskFullError, match="copies of delayed messages"):
        node.append(b"x")
    timers.refuses = False
    node.run(timers=timers)
    assert node.deleted >= 3 and 0 in timers.forgotten
    node.append(b"x")


def test_a_segment_whose_marks_cannot_be_read_stays_readable_until_it_is_deleted(form):
    class Unreadable(Timers):
        def forget(self, base: int) -> None:
            if self.refuses:
                raise OSError(errno.EIO, "the view cannot be read")
            super().forget(base)

        def relocate(self, base: int):
            yield

    node, timers = Node(form), Unreadable()
    first = "/data/log/00000000000000000000.seg"
    node.fill_disk("never")
    node.run(timers=timers)
    assert node.deleted == 0
    assert node.m.log.bounds(1, 0)[0] == 0 and node.m.env.exists(first)
    timers.refuses = False
    node.run(timers=timers)
    assert node.deleted >= 3 and not node.m.env.exists(first)


def test_sends_are_accepted_again_when_no_segment_has_to_go_any_more(form):
    node = Node(form)
    node.fill_disk()
    node.run()
    node.m.env.heal()
    node.m.env.disk_used, node.m.env.disk_free = GIB, 99 * GIB
    node.run()
    assert node.deleted == 0 and node.m.log.retention.health is True
    node.append(b"x")


@pytest.fixture
def unreadable(form):
    """A node of which the disk does not read the first segment's control batches; what it does not read can be set."""
    node = Node(form, progress=5)
    node.bad = True

    def on_call(operation: str, path: str, at: int, size: int) -> None:
        is_batch = path.endswith("/00000000000000000000.seg") and at > 0 and size > 48
        if operation == "read" and node.bad and is_batch:
            raise OSError(errno.EIO, "Input/output error", path)

    node.m.env.on_call = on_call
    node.fill_disk("never")
    return node


def test_a_segment_whose_control_batches_cannot_be_read_is_kept_for_a_minute(unreadable):
    node = unreadable
    node.run(30)
    assert node.deleted == 0
    node.bad = False
    node.run()
    assert node.deleted >= 3
    node.assert_log_has_all()


@pytest.mark.parametrize("step", [1, relocation.STEP])
def test_instead_of_control_batches_that_are_lost_all_that_the_view_has_is_relocated(unreadable, monkeypatch, step):
    monkeypatch.setattr(relocation, "STEP", step)
    node = unreadable
    node.run(120)
    assert node.deleted >= 3
    node.m.env.on_call = None
    node.assert_log_has_all()


def test_of_a_segment_whose_index_lacks_what_cannot_be_read_all_that_the_view_has_is_relocated(unreadable):
    node = unreadable
    node.bad = False
    node.m.close()
    del node.m.env.files[node.m.file(".idx", 0)]
    node.bad = True
    node.m.open()
    for _ in range(80):  # the node's schedule tries again after an error
        with contextlib.suppress(OSError):
            node.run(1)
        node.m.env.clock_ms += 1000
    assert node.deleted >= 3
    node.m.env.on_call = None
    node.assert_log_has_all()
