"""Reads far behind the end whose bytes another broker lends: read from memory, within a budget, with the disk behind it."""

import errno
from threading import Event

import pytest
from forms import forms, load
from machine import Machine

from engine.env.real import RealEnv, RealFile
from engine.env.simulated import SimulatedEnv
from engine.log.read.borrowed import IDLE_MS, UNSOUND_MS, WINDOW
from tests.unit.engine.log.read.test_cold import LazyBackground

MIB = 1 << 20
PIECE = 256 << 10


class Copy:
    """Another broker with the same segments, which gives a piece at a time.

    Attributes:
        left: pieces until it has no more to give.
        alters: what it makes of each piece.
    """

    def __init__(self, env: SimulatedEnv, far_bytes: int = MIB) -> None:
        self.env, self.far_bytes = env, far_bytes
        self.is_ready = True
        self.left = 1 << 30
        self.asked: list[tuple[int, int]] = []
        self.alters = bytes
        self.stopped = False

    def lend(self, base: int, address: int, size: int) -> bytes:
        self.asked.append((base, address))
        self.left -= 1
        if self.left < 0:
            return b""
        return self.alters(self.env.files[f"/data/log/{base:020d}.seg"].seen[address : address + min(size, PIECE)])

    def stop(self) -> None:
        self.stopped = True


def filled(form, env, directory="/data", cache=4 * MIB, body=4000, **settings):
    """A log with three full segments of 4 MiB before the active one, and what queue 0 of topic 1 has in it."""
    made = Machine(
        form, env, directory, segment_bytes=4 * MIB, cold_distance_bytes=MIB, cold_cache_bytes=cache, **settings
    )  # fmt: skip
    made.held = []
    while made.log.appender.segment_base < 12 * MIB:
        made.held.append((b"%d," % len(made.held)).ljust(body, b"-"))
        made.append(1, 0, made.held[-1])
    return made


@pytest.fixture(params=forms())
def machine(request):
    made = filled(load(request.param), SimulatedEnv())
    made.copy = Copy(made.env)
    made.log.cold.borrow_from(made.copy)
    made.disk = []
    made.env.on_call = lambda call, path, at, size: made.disk.append((path, at, size)) if call == "read" else None
    yield made
    made.env.heal()
    made.close()


def memory(env) -> int:
    """Windows of borrowed memory in use."""
    return sum(
        any(file.content.seen[at : at + WINDOW]) for file in env.memory_files for at in range(0, file.size(), WINDOW)
    )


def test_a_reader_gets_every_record_from_borrowed_bytes_and_the_own_disk_reads_none_of_them(machine):
    assert machine.bodies(1, 0, max_bytes=MIB // 2) == machine.held
    assert machine.log.cold.bytes_borrowed >= 8 * MIB
    assert machine.log.cold.bytes_fetched == 0
    assert not [each for each in machine.disk if each[0].endswith(".seg") and int(each[0][-24:-4]) < 8 * MIB]


def test_the_memory_is_bounded_by_the_cache_and_given_back_when_nothing_is_read(machine):
    most, offset = 0, 0
    while pieces := machine.log.read(1, 0, offset, 20, MIB):
        offset = pieces[-1].first_offset + pieces[-1].count
        most = max(most, memory(machine.env))
    assert offset == len(machine.held)
    assert 2 <= most <= 4
    machine.log.cold.give_back_idle()
    assert machine.env.memory_files
    machine.env.clock_ms += IDLE_MS
    machine.log.cold.give_back_idle()
    assert not machine.env.memory_files
    assert machine.bodies(1, 0) == machine.held


def test_windows_that_nothing_has_read_yet_are_not_given_back_as_idle(machine):
    lazy = machine.log.cold._background = LazyBackground()
    machine.env.clock_ms += 10 * IDLE_MS
    assert machine.log.read(1, 0, 0, 100, MIB) == []
    machine.log.cold.give_back_idle()
    lazy.run()
    assert machine.log.take_woken() == [(1, 0)]
    machine.log.cold.give_back_idle()
    assert machine.log.read(1, 0, 0, 100, MIB)


def test_segments_that_lie_nearer_are_read_from_the_own_disk(machine):
    machine.copy.far_bytes = 10 * MIB
    assert machine.bodies(1, 0) == machine.held
    assert {base for base, _ in machine.copy.asked} == {0}
    assert machine.log.cold.bytes_fetched >= 3 * MIB


def test_what_is_in_the_own_page_cache_is_not_borrowed(machine):
    machine.env.in_memory = True
    assert machine.bodies(1, 0) == machine.held
    assert machine.copy.asked == [] and not machine.env.memory_files


@pytest.mark.parametrize("left", [0, 1, 6, 21])
def test_a_lender_that_fails_costs_the_own_disks_read_and_no_record(machine, left):
    machine.copy.left = left
    assert machine.bodies(1, 0, max_bytes=MIB // 2) == machine.held
    assert machine.log.cold.bytes_borrowed == left * PIECE
    assert machine.log.cold.bytes_fetched >= (5 - left // 4) * MIB
    assert not machine.log.segments.suspects


def test_without_a_broker_to_ask_windows_are_fetched_into_the_page_cache_as_ever(machine):
    machine.copy.is_ready = False
    assert machine.bodies(1, 0) == machine.held
    assert machine.copy.asked == [] and machine.log.cold.bytes_borrowed == 0


@pytest.mark.parametrize(
    "alters",
    [lambda piece: bytes(len(piece)), lambda piece: bytes(100) + bytes(piece[100:]), lambda piece: bytes(piece[8:])],
    ids=["zeros", "first bytes", "shifted"],
)
def test_borrowed_bytes_that_do_not_verify_are_read_again_from_the_own_disk(machine, alters):
    machine.copy.alters = alters
    machine.log.segments.suspects.can_be_repaired = True
    assert machine.bodies(1, 0) == machine.held
    assert not machine.log.segments.suspects, "the own segments are sound"
    assert machine.log.cold.bytes_fetched >= 8 * MIB
    asked = len(machine.copy.asked)
    assert machine.bodies(1, 0) == machine.held
    assert len(machine.copy.asked) == asked, "it is not asked for these segments again"
    machine.copy.alters = bytes
    machine.env.clock_ms += UNSOUND_MS
    machine.log.cold._windows.clear()
    assert machine.bodies(1, 0) == machine.held
    assert len(machine.copy.asked) > asked


def test_damage_of_the_own_disk_is_met_when_the_borrowed_bytes_do_not_verify_either(machine):
    machine.damage("/data/log/" + "0" * 20 + ".seg", 2000, b"\xff")
    with pytest.raises(Exception, match="does not verify"):
        machine.bodies(1, 0)  # the copy reads the same file
    assert machine.log.segments.suspects.all() == [0]


def test_a_sector_that_the_own_disk_cannot_read_does_not_matter_to_borrowed_bytes(machine):
    machine.env.fail("read", errno.EIO)
    found = machine.log.read(1, 0, 0, 100, MIB // 2)
    assert found and found[0].first_offset == 0


@pytest.mark.parametrize("lazy", [False, True])
def test_a_batch_over_several_windows_is_read_once_all_of_them_are_there(form, lazy):
    m = filled(form, SimulatedEnv(), cache=16 * MIB, body=int(1.7 * MIB))
    copy = Copy(m.env)
    m.log.cold.borrow_from(copy)
    if lazy:
        m.log.cold._background = LazyBackground()
    offset, found = 0, []
    for _ in range(10 * len(m.held)):
        for piece in m.log.read(1, 0, offset, 1, MIB):
            found += m.form.format.split_records(piece.records)
            offset += piece.count
        if lazy:
            m.log.cold._background.run()
            m.log.take_woken()
    assert found == m.held
    assert m.log.cold.bytes_borrowed >= 8 * MIB and m.log.cold.bytes_fetched == 0
    m.close()


def test_a_batch_that_is_larger_than_half_the_memory_is_read_from_the_own_disk(form):
    m = filled(form, SimulatedEnv(), body=int(3.2 * MIB))
    copy = Copy(m.env)
    m.log.cold.borrow_from(copy)
    assert m.bodies(1, 0, max_bytes=4 * MIB) == m.held
    assert copy.asked
    m.close()


def test_a_window_of_a_segment_that_went_meanwhile_answers_out_of_range(machine):
    lazy = machine.log.cold._background = LazyBackground()
    assert machine.log.read(1, 0, 0, 100, MIB) == []
    machine.log.segments.sealed.remove(0)
    machine.env.unlink("/data/log/" + machine.form.format.segment_name(0))
    lazy.run()
    assert machine.log.take_woken() == [(1, 0)]
    with pytest.raises(Exception, match="outside"):
        machine.log.read(1, 0, 0, 100, MIB)
    machine.env.clock_ms += IDLE_MS
    machine.log.cold.give_back_idle()
    lazy.run()
    assert not machine.env.memory_files and machine.copy.asked == []


def test_bytes_that_are_distrusted_while_others_are_being_fetched_wake_the_queues_that_wait(machine):
    lazy = machine.log.cold._background = LazyBackground()
    assert machine.log.read(1, 0, 0, 100, MIB) == []
    machine.log.cold.distrust(machine.log.segments.sealed.get(0))
    lazy.run()
    assert machine.log.take_woken() == [(1, 0)]
    assert machine.log.read(1, 0, 0, 100, MIB) == []
    lazy.run()
    assert machine.log.take_woken() == [(1, 0)]
    assert machine.log.read(1, 0, 0, 100, MIB)
    assert machine.copy.asked == [] and not machine.env.memory_files


def test_more_windows_than_the_memory_holds_are_left_to_the_page_cache(form):
    m = Machine(
        form, SimulatedEnv(), "/data", segment_bytes=16 * MIB, cold_distance_bytes=MIB, cold_cache_bytes=4 * MIB
    )  # fmt: skip
    for queue in range(4):  # each has its own part of the segment
        for _ in range(8):
            m.append(1, queue, bytes(MIB // 2))
    while m.log.appender.segment_base < 48 * MIB:
        m.append(2, 0, bytes(MIB // 2))
    copy = Copy(m.env)
    m.log.cold.borrow_from(copy)
    lazy = m.log.cold._background = LazyBackground()
    for queue in range(3):
        assert m.log.read(1, queue, 0, 1, MIB) == []
    assert m.log.cold._borrowed.segments == {}, "three readers want six windows"
    lazy.run()
    m.env.in_memory = True  # the thread has fetched some of it, and the machine has room
    woken = [queue for _ in range(3) for queue in m.log.take_woken()]
    assert sorted(woken) == [(1, 0), (1, 1), (1, 2)]
    assert all(m.log.read(1, queue, 0, 1, MIB) for queue in range(3))
    assert copy.asked == [] and not m.env.memory_files
    m.close()


def test_closing_ends_a_fetch_that_waits_for_its_lender(form, tmp_path, monkeypatch):
    m = filled(form, RealEnv(), str(tmp_path))
    monkeypatch.setattr(RealFile, "in_memory", lambda *_: False)
    asked, stopped = Event(), Event()

    class Silent(Copy):
        def lend(self, base: int, address: int, size: int) -> bytes:
            asked.set()
            assert stopped.wait(10)
            return b""

        def stop(self) -> None:
            stopped.set()

    m.log.cold.borrow_from(Silent(m.env))
    assert m.log.read(1, 0, 0, 100, MIB) == []
    assert asked.wait(10)
    m.close()
    assert stopped.is_set()


def test_borrowed_memory_of_the_real_machine_is_read_and_given_back(tmp_path):
    file = RealEnv().memory_file("test", 3 * MIB + 5000)
    assert file.write_at(b"x" * MIB, MIB) == MIB
    assert file.write_at(b"y" * 5000, 3 * MIB) == 5000
    assert (file.read_at(2, MIB - 1), file.read_at(10, 3 * MIB + 4999)) == (b"\0x", b"y")
    assert file.next_data(0) == MIB
    file.clear(MIB, MIB)
    file.clear(3 * MIB, MIB)
    assert file.read_at(2, MIB) == b"\0\0" and file.next_data(0) is None
    assert file.size() == 3 * MIB + 5000
    file.close()
