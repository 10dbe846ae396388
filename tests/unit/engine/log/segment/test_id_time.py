"""Wall clocks that are set, by an operator or at a start: an id is remembered for its window all the same."""

import pytest
from checked import APPENDED, DUPLICATE, OK, batch
from machine import NOW, Machine

from engine.env.simulated import SimulatedEnv

HOUR = 3_600_000
WINDOW = 600_000
DAY_S = 86_400


class Node:
    """A log whose appends are stamped by the machine's wall clock, as an engine's are."""

    def __init__(self, form, **settings) -> None:
        self.m = Machine(form, SimulatedEnv(), "/data", **settings)

    def send(self, shown: bytes, window_ms: int = WINDOW, body: bytes = b"") -> int:
        """The code of a message with that id."""
        made = batch(self.m, 0, shown, window_ms, body=body)
        results = self.m.log.appender.append_results(made, 1, self.m.env.now_ms())
        return APPENDED.unpack(results)[0]

    def wait(self, ms: int) -> None:
        """Let time pass; the log compares its clocks meanwhile."""
        self.m.env.clock_ms += ms
        self.m.log.retention.step()

    def step(self, ms: int) -> None:
        """Set the wall clock."""
        self.m.env.wall_shift_ms += ms


@pytest.fixture
def node(form):
    return Node(form)


@pytest.mark.parametrize("step_ms", [30_000, WINDOW // 2, WINDOW + 60_000, 1000 * HOUR, -1000 * HOUR])
def test_a_step_of_the_clock_neither_ends_nor_prolongs_a_window(node, step_ms):
    assert node.send(b"before") == OK
    node.step(step_ms)
    assert node.send(b"before") == DUPLICATE
    assert node.send(b"after") == OK
    node.wait(WINDOW - 1_000)
    assert (node.send(b"before"), node.send(b"after")) == (DUPLICATE, DUPLICATE)
    assert node.m.log.for_timers.first_copy(1, b"before") == (0, 0)
    node.wait(2_000)
    assert node.m.log.for_timers.first_copy(1, b"before") is None
    assert (node.send(b"before"), node.send(b"after")) == (OK, OK)


def test_an_id_outlives_the_moment_at_which_a_step_ahead_begins_to_count(node):
    node.step(2 * HOUR)
    for _ in range(119):
        node.wait(60_000)
    assert node.m.log.retention.clock_ahead_ms == 2 * HOUR
    assert node.send(b"id") == OK
    node.wait(120_000)
    assert node.m.log.retention.clock_ahead_ms == 0
    assert node.send(b"id") == DUPLICATE
    node.m.log.retention.accept_clock()
    assert node.send(b"id") == DUPLICATE


def test_a_clock_that_is_set_back_after_a_step_ahead_ends_windows_in_time(node):
    node.step(1000 * HOUR)
    node.wait(2_000)
    assert node.send(b"id") == OK
    node.step(-1000 * HOUR)
    node.wait(WINDOW + 1_000)
    assert node.send(b"id") == OK


@pytest.mark.parametrize("how", ["kill", "reopen", "state"])
def test_a_restart_while_a_step_ahead_waits_forgets_no_id(node, how):
    for number in range(40):  # over several segments, so that id files and the active segment are read
        assert node.send(b"before-%d" % number, body=bytes(400)) == OK
    node.wait(1_000)
    node.step(1000 * HOUR)
    node.wait(2_000)
    for number in range(40):
        assert node.send(b"after-%d" % number, body=bytes(400)) == OK
    if how == "state":
        node.m.close()
        node.m.env.stores.clear()
        node.m.open()
    else:
        getattr(node.m, how)()
    node.wait(60_000)
    for number in range(40):
        assert node.send(b"before-%d" % number) == DUPLICATE
        assert node.send(b"after-%d" % number) == DUPLICATE
    node.wait(WINDOW)
    assert node.send(b"before-0") == OK


def test_a_restart_keeps_no_id_for_longer_than_a_window_can_be_because_of_a_wrong_clock(node):
    node.step(1000 * HOUR)
    node.wait(2_000)
    assert node.send(b"id") == OK
    node.step(-1000 * HOUR)
    node.wait(2_000)
    assert node.send(b"another") == OK
    node.m.reopen()
    node.wait((DAY_S + 60) * 1000)
    assert node.send(b"id") == DUPLICATE
    node.wait(2_000)
    assert node.send(b"id") == OK


def test_segments_that_were_begun_while_the_clock_was_back_hide_no_ids_of_earlier_ones_from_a_start(node):
    assert node.send(b"id") == OK
    node.wait(1_000)
    node.step(-3 * 24 * HOUR)
    for number in range(80):
        assert node.send(b"meanwhile-%d" % number, body=bytes(600)) == OK
    node.step(3 * 24 * HOUR)
    node.wait(2_000)
    node.m.reopen()
    assert node.send(b"id") == DUPLICATE


def test_a_clock_that_is_years_back_at_a_start_forgets_no_id(node):
    assert node.send(b"id") == OK
    node.step(-20 * 365 * 24 * HOUR)
    node.m.reopen()
    assert node.send(b"id") == DUPLICATE
    node.step(20 * 365 * 24 * HOUR)  # corrected
    node.wait(5_000)
    assert node.send(b"id") == DUPLICATE
    assert node.send(b"new") == OK
    node.m.reopen()
    assert (node.send(b"id"), node.send(b"new")) == (DUPLICATE, DUPLICATE)


def test_a_start_long_after_the_newest_record_counts_a_minute_of_it(node):
    assert (node.send(b"short", window_ms=30_000), node.send(b"long", window_ms=2 * HOUR)) == (OK, OK)
    node.m.env.clock_ms += 100 * HOUR
    node.m.reopen()
    assert (node.send(b"short"), node.send(b"long")) == (OK, DUPLICATE)
    node.wait(2 * HOUR - 59_000)
    assert node.send(b"long") == OK


def test_what_is_stored_is_stamped_by_the_wall_clock(node):
    node.step(1000 * HOUR)
    node.send(b"id")
    (piece,) = node.m.log.read(1, 0, 0, 10, 1000)
    assert piece.stored_at_ms == NOW + 1000 * HOUR


def test_the_time_is_asked_once_per_append_and_only_for_batches_that_are_checked(node):
    asked = []
    monotonic_ns = type(node.m.env.clock).monotonic_ns

    class Counting(type(node.m.env.clock)):
        def monotonic_ns(self) -> int:
            asked.append(1)
            return monotonic_ns(self)

    node.m.close()
    node.m.env.clock = Counting(node.m.env)
    log = node.m.open()
    asked.clear()
    plain, checked = node.m.batch(1, 0, [b"x"]), batch(node.m, 0, b"a") + batch(node.m, 0, b"b")
    log.appender.append_results(plain * 5, 5, NOW)
    assert not asked
    log.appender.append_results(plain + checked, 3, NOW)
    assert len(asked) == 1
