"""The machine's clocks in both forms, and clocks that stand in for them."""

import time

import pytest

from engine.env import clock as reference
from engine.env import native
from engine.env.simulated import SimulatedEnv

FORMS = [reference.NodeClock, *([native.NodeClock] if native.NATIVE else [])]


@pytest.mark.parametrize("form", FORMS)
def test_a_clock_tells_the_machines_time(form):
    clock = form()
    assert abs(clock.wall_ms() - time.time() * 1000) < 1000
    before = time.monotonic_ns()
    assert before <= clock.monotonic_ns() <= time.monotonic_ns()
    assert before // 1_000_000 <= clock.monotonic_ms() <= time.monotonic_ns() // 1_000_000


@pytest.mark.parametrize("form", FORMS)
def test_a_subclass_turns_all_of_it(form):
    class Turned(form):
        def wall_ms(self) -> int:
            return 7

        def monotonic_ns(self) -> int:
            return 9_000_001

    clock = Turned()
    assert (clock.wall_ms(), clock.monotonic_ns(), clock.monotonic_ms()) == (7, 9_000_001, 9)


def test_a_simulated_machine_has_one_time():
    env = SimulatedEnv()
    env.clock_ms = 1234
    assert (env.now_ms(), env.clock.wall_ms(), env.clock.monotonic_ms()) == (1234, 1234, 1234)
    assert env.random_fraction() == SimulatedEnv().random_fraction() != SimulatedEnv(2).random_fraction()
