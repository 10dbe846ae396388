"""The gevent loop under a node: its timer, and calls from other threads."""

import _thread
from types import SimpleNamespace

import gevent
import pytest
from gevent import monkey

from engine.env.native import NodeClock
from engine.server.loop import NodeLoop


class FakeNode:
    """Remembers its calls; `next_in_ms` is what it answers a tick."""

    def __init__(self) -> None:
        self.ticks: list[int] = []
        self.turns = 0
        self.next_in_ms: int | None = None

    def tick(self, now_ms: int) -> int | None:
        self.ticks.append(now_ms)
        return None if self.next_in_ms is None else now_ms + self.next_in_ms

    def turn_end(self) -> None:
        self.turns += 1


@pytest.fixture
def desk():
    desk = SimpleNamespace(clock=NodeClock(), node=FakeNode())
    desk.loop = NodeLoop(desk.clock)
    yield desk
    desk.loop.close()


def turn_until(condition) -> None:
    with gevent.Timeout(5):
        while not condition():
            gevent.sleep(0.001)


def test_it_ticks_at_the_start_and_as_often_as_the_node_says(desk):
    desk.node.next_in_ms = 5
    desk.loop.start(desk.node)
    assert len(desk.node.ticks) == 1
    turn_until(lambda: len(desk.node.ticks) >= 4)
    # The loop's clock and the node's are cut to milliseconds at different moments.
    assert all(later - sooner >= 4 for sooner, later in zip(desk.node.ticks, desk.node.ticks[1:], strict=False))
    desk.loop.stop()
    count = len(desk.node.ticks)
    gevent.sleep(0.02)
    assert len(desk.node.ticks) == count


def test_a_node_without_work_is_not_called_before_it_asks(desk):
    desk.loop.wake_at(desk.clock.monotonic_ms())
    desk.loop.start(desk.node)
    gevent.sleep(0.02)
    assert len(desk.node.ticks) == 1
    due_ms = desk.clock.monotonic_ms() + 10
    desk.loop.wake_at(due_ms)
    turn_until(lambda: len(desk.node.ticks) == 2)
    assert desk.node.ticks[1] >= due_ms


def test_calls_from_threads_run_in_the_loop_in_their_order(desk):
    start = monkey.get_original("_thread", "start_new_thread")
    ran: list[object] = []
    desk.loop.start(desk.node)

    def work() -> None:
        for number in range(3):
            desk.loop.in_loop(lambda number=number: ran.append((number, _thread.get_native_id())))
        desk.loop.in_loop(lambda: 1 / 0)
        desk.loop.on_fetched()
        desk.loop.in_loop(lambda: ran.append("last"))

    start(work, ())
    turn_until(lambda: "last" in ran)
    own = _thread.get_native_id()
    assert ran == [(0, own), (1, own), (2, own), "last"]
    turn_until(lambda: desk.node.turns)
