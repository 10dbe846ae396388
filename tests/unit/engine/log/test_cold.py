"""Reads far behind the end: fetched by the thread, woken, within a budget, out of the page cache behind the reader."""

import pytest
from forms import forms, load
from machine import Machine

from engine.background import InlineBackground
from engine.simulated import SimulatedEnv

MIB = 1 << 20


class LazyBackground(InlineBackground):
    """Runs nothing before somebody says so."""

    def __init__(self) -> None:
        self.tasks = []

    def submit(self, task) -> None:
        self.tasks.append(task)

    def run(self) -> None:
        while self.tasks:
            self.tasks.pop(0)()

    def stop(self) -> None:
        self.run()


@pytest.fixture(params=forms())
def machine(request):
    made = Machine(
        load(request.param), SimulatedEnv(), "/data", segment_bytes=4 * MIB, cold_distance_bytes=4 * MIB, cold_cache_bytes=4 * MIB
    )  # fmt: skip
    made.held = []
    while made.log.appender.segment_base < 12 * MIB:
        made.held.append(b"%d," % len(made.held) * 4000)
        made.append(1, 0, made.held[-1])
    yield made
    made.close()


def read(m: Machine, offset: int) -> list[bytes]:
    """Bodies of one read."""
    return [
        body
        for piece in m.log.read(1, 0, offset, 1000, MIB // 2)
        for body in m.form.format.split_records(piece.records)
    ]


def test_a_cold_read_gets_nothing_until_its_window_has_been_fetched_and_is_woken_then(machine):
    lazy = machine.log.cold._background = LazyBackground()
    notified = []
    machine.log.cold.notify = lambda: notified.append(True)
    assert read(machine, 0) == []
    assert machine.log.is_fetching(1, 0)
    assert machine.log.take_woken() == []
    lazy.run()
    assert notified
    assert machine.log.take_woken() == [(1, 0)]
    assert not machine.log.is_fetching(1, 0)
    found = read(machine, 0)
    assert found == machine.held[: len(found)] != []


def test_what_is_in_memory_is_read_at_once_and_left_there(machine):
    machine.log.cold._background = LazyBackground()
    machine.env.in_memory = True
    assert machine.bodies(1, 0) == machine.held
    assert machine.log.cold.bytes_fetched == 0
    assert machine.env.forgotten == []


def test_a_read_near_the_end_never_waits(machine):
    machine.log.cold._background = LazyBackground()
    offset = len(machine.held) - 3
    assert read(machine, offset) == machine.held[offset:]


def test_draining_everything_gives_every_record_once_and_leaves_no_more_than_the_cache_behind(machine):
    assert machine.bodies(1, 0) == machine.held
    assert machine.env.forgotten
    assert len(machine.log.cold._windows) <= 4
    assert machine.log.cold.bytes_fetched >= 4 * MIB


def test_a_cold_reader_keeps_to_its_budget(form):
    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=4 * MIB, cold_distance_bytes=MIB, cold_bytes_a_second=MIB)
    while m.log.appender.segment_base < 8 * MIB:
        m.append(1, 0, bytes(50_000))
    before = m.env.clock_ms
    m.bodies(1, 0)
    assert 2500 <= m.env.clock_ms - before <= 6000
    m.close()


def test_a_window_of_a_segment_that_went_meanwhile_answers_out_of_range(machine):
    lazy = machine.log.cold._background = LazyBackground()
    assert read(machine, 0) == []
    machine.log._sealed.remove(0)
    machine.env.unlink("/data/log/" + machine.form.format.segment_name(0))
    lazy.run()
    assert machine.log.take_woken() == [(1, 0)]
    with pytest.raises(Exception, match="outside"):
        read(machine, 0)
