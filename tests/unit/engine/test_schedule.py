"""Recurring work of a node: what runs when, and when the owner of the clock is asked to call."""

import pytest

from engine.schedule import AFTER_FAULT_MS, Schedule


class Desk:
    def __init__(self) -> None:
        self.woken: list[int] = []
        self.ran: list[tuple[str, int]] = []
        self.schedule = Schedule(self.woken.append)

    def add(self, name: str, every_ms: int | None):
        def run(now_ms: int) -> int | None:
            self.ran.append((name, now_ms))
            return None if every_ms is None else now_ms + every_ms

        return self.schedule.add(name, run)


@pytest.fixture
def desk():
    return Desk()


def test_only_due_work_runs_and_the_next_time_is_returned(desk):
    often, once = desk.add("often", 10), desk.add("once", None)
    desk.schedule.at(often, 100)
    desk.schedule.at(once, 105)
    assert desk.schedule.run(99) == 100
    assert desk.schedule.run(100) == 105
    assert desk.schedule.run(106) == 110
    assert desk.ran == [("often", 100), ("once", 106)]
    desk.schedule.stop(often)
    assert desk.schedule.run(1000) is None


def test_the_owner_is_woken_only_for_what_is_sooner(desk):
    first, second = desk.add("first", None), desk.add("second", None)
    desk.schedule.at(first, 100)
    desk.schedule.at(second, 200)
    desk.schedule.at(second, 150)
    desk.schedule.at(first, 120)
    assert desk.woken == [100]
    desk.schedule.at(second, 50)
    assert desk.woken == [100, 50]
    assert desk.schedule.run(60) == 100
    desk.schedule.at(second, 90)
    assert desk.woken == [100, 50, 90]


def test_work_that_asks_for_itself_while_it_runs_is_in_the_answer(desk):
    def run(now_ms: int) -> None:
        desk.schedule.at(work, now_ms + 5)

    work = desk.schedule.add("work", run)
    desk.schedule.at(work, 10)
    assert desk.schedule.run(10) == 15
    assert desk.woken == [10]


def test_a_fault_pauses_its_work_and_no_other(desk):
    def fail(now_ms: int) -> None:
        raise RuntimeError("a fault")

    broken, good = desk.schedule.add("broken", fail), desk.add("good", 10)
    desk.schedule.at(broken, 100)
    desk.schedule.at(good, 100)
    assert desk.schedule.run(100) == 110
    assert (desk.ran, broken.due_ms) == ([("good", 100)], 100 + AFTER_FAULT_MS)
