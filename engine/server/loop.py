"""The gevent loop under a node: one timer, and calls from other threads."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

import gevent

from common.limited_log import LimitedLog
from engine.env.native import NodeClock

limited = LimitedLog(logging.getLogger("penstock.engine"))


class LoopedNode(Protocol):
    """A `Node`, or what stands for it while a broker does not lead."""

    def tick(self, now_ms: int) -> int | None:
        """Do the due work; returns the time of the next call."""

    def turn_end(self) -> None:
        """Serve the requests that wait for records."""


class NodeLoop:
    """Calls the node when time or another thread asks for it.

    The log and the node are given its methods when they are made, so `start()` comes last. Before it the node is not
    called.

    Args:
        clock: the node's clock.
    """

    def __init__(self, clock: NodeClock) -> None:
        self._clock = clock
        loop = gevent.get_hub().loop
        self._new_timer = loop.timer
        self._timer = loop.timer(0)
        self._node: LoopedNode | None = None
        self._calls: deque[Callable[[], None]] = deque()
        self._has_fetched = False
        self._posted = loop.async_()
        self._posted.start(self._on_posted)

    def start(self, node: LoopedNode) -> None:
        """Begin to call the node."""
        self._node = node
        self._on_timer()

    def stop(self) -> None:
        """Stop calling the node."""
        self._node = None
        self._timer.stop()

    def close(self) -> None:
        """Close the watchers. No thread may call afterwards, so the log is closed before."""
        self.stop()
        self._timer.close()
        self._posted.stop()
        self._posted.close()

    def wake_at(self, due_ms: int) -> None:
        """Have `Node.tick()` called at this monotonic time."""
        if self._node is not None:
            self._arm(due_ms)

    def in_loop(self, call: Callable[[], None]) -> None:
        """Run a function in the loop. Callable from every thread."""
        self._calls.append(call)
        self._posted.send()

    def on_fetched(self) -> None:
        """Cold records were fetched: have the node serve the requests that wait for them.

        Callable from every thread.
        """
        self._has_fetched = True
        self._posted.send()

    def _arm(self, due_ms: int) -> None:
        self._timer.stop()
        self._timer.close()
        self._timer = self._new_timer(max(0, due_ms - self._clock.monotonic_ms()) / 1000)
        # The loop's own time is that of its last turn: without the update the timer would fire early.
        self._timer.start(self._on_timer, update=True)

    def _on_timer(self) -> None:
        if self._node is not None:
            due_ms = self._node.tick(self._clock.monotonic_ms())
            if due_ms is not None and self._node is not None:
                self._arm(due_ms)

    def _on_posted(self) -> None:
        if self._has_fetched:
            self._has_fetched = False  # before the node looks: later fetches post again
            if self._node is not None:
                self._node.turn_end()
        while self._calls and self._node is not None:
            try:
                self._calls.popleft()()
            except Exception:
                limited.exception("a call from another thread failed")
