"""Reads far behind the end: fetched by the thread, woken, within a budget, out of the page cache behind the reader."""

import pytest
from forms import forms, load
from machine import Machine

from engine.env.background import InlineBackground
from engine.env.simulated import SimulatedEnv

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


def test_what_is_in_memory_is_read_without_the_disk_and_left_there(machine):
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


@pytest.fixture(params=forms())
def budgeted(request):
    """8 MiB of old batches of 50,000 bytes, four queues in turns, a MiB a second."""
    made = Machine(
        load(request.param), SimulatedEnv(), "/data", segment_bytes=4 * MIB, cold_distance_bytes=MIB, cold_bytes_a_second=MIB
    )  # fmt: skip
    while made.log.appender.segment_base < 12 * MIB:
        for queue in range(4):
            made.append(1, queue, bytes(50_000))
    yield made
    made.close()


def drain(m: Machine, *, appending: bool, stop_at: int = 8 * MIB) -> dict[int, int]:
    """Bytes read of each queue, in turns, until they are `stop_at` together; a queue that got nothing waits to be woken."""
    read_of = dict.fromkeys(range(4), 0)
    offsets, ready = dict(read_of), dict(read_of)
    while sum(read_of.values()) < stop_at:
        if appending:
            m.append(1, 3, b"x")  # behind what is read
        for _, queue in m.log.take_woken():
            ready[queue] = 0
        queue = next(iter(ready))
        del ready[queue]
        for piece in m.log.read(1, queue, offsets[queue], 1000, 60_000):
            offsets[queue] = piece.first_offset + piece.count
            read_of[queue] += len(piece.records)
            ready[queue] = 0
    return read_of


def test_a_cold_reader_keeps_to_its_budget_while_others_append(budgeted):
    before = budgeted.env.clock_ms
    drain(budgeted, appending=True)
    assert 6000 <= budgeted.env.clock_ms - before <= 12_000


def test_what_is_in_memory_takes_of_the_budget_too(budgeted):
    budgeted.env.in_memory = True
    before = budgeted.env.clock_ms
    drain(budgeted, appending=True)
    assert 6000 <= budgeted.env.clock_ms - before <= 12_000


def test_a_cold_reader_that_is_alone_for_a_second_has_no_budget_to_keep_to(budgeted):
    before = budgeted.env.clock_ms
    drain(budgeted, appending=False)
    assert budgeted.env.clock_ms - before < 1500


def test_a_clock_that_steps_back_stops_a_cold_reader_for_a_second_at_most(budgeted):
    drain(budgeted, appending=True, stop_at=MIB)
    budgeted.env.clock_ms -= 3_600_000
    before = budgeted.env.clock_ms
    drain(budgeted, appending=True, stop_at=MIB)
    assert budgeted.env.clock_ms - before <= 3000


def test_queues_that_wait_for_the_budget_get_it_in_the_order_in_which_they_came(budgeted):
    read_of = drain(budgeted, appending=True, stop_at=4 * MIB)
    assert max(read_of.values()) - min(read_of.values()) <= 2 * 60_000


def test_of_many_queues_that_wait_for_a_window_a_few_are_woken_at_a_time(form):
    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=4 * MIB, cold_distance_bytes=MIB)
    while m.log.appender.segment_base < 8 * MIB:
        for queue in range(4):
            m.append(1, queue, bytes(20_000))
    lazy = m.log.cold._background = LazyBackground()
    notified = []
    m.log.cold.notify = lambda: notified.append(True)
    for queue in range(4):
        assert m.log.read(1, queue, 0, 1000, 60_000) == []
    lazy.run()
    woken = []
    while notified:
        notified.clear()
        woken.append(m.log.take_woken())
    assert [len(some) for some in woken] == [2, 2], "reads are taken to be 65,536 bytes until some were done"
    assert sorted(queue for some in woken for queue in some) == [(1, queue) for queue in range(4)]
    m.close()


def test_the_batch_in_which_a_whole_read_ends_is_given_to_its_end(form):
    m = Machine(form, SimulatedEnv(), "/data")
    m.append(1, 0, *[b"%d" % i * 100 for i in range(20)])
    assert sum(piece.count for piece in m.log.read(1, 0, 3, 1000, 500)) < 17
    assert sum(piece.count for piece in m.log.read(1, 0, 3, 1000, 500, whole=True)) == 17
    m.close()


def test_a_window_of_a_segment_that_went_meanwhile_answers_out_of_range(machine):
    lazy = machine.log.cold._background = LazyBackground()
    assert read(machine, 0) == []
    machine.log.segments.sealed.remove(0)
    machine.env.unlink("/data/log/" + machine.form.format.segment_name(0))
    lazy.run()
    assert machine.log.take_woken() == [(1, 0)]
    with pytest.raises(Exception, match="outside"):
        read(machine, 0)
