"""Calls of a library in a thread of their own, so that its callbacks run in the thread that waits for the call.

Callbacks of a rebalance may take long. kafka-python would run them on the loop that sends heartbeats, and librdkafka
would wait for them without a bound. Here the library's side may stop to wait, while the callback goes on.

confluent-kafka lets no other thread use a client that is in a callback. So a callback's own calls of the library go
back to the relay's thread, which executes them while it waits.
"""

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Ended(NamedTuple):
    value: Any
    fault: BaseException | None


class CallbackRelay:
    """For one thread that calls `run`; any thread may `hand` a callback over while it does."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._steps: SimpleQueue[Callable[[], None] | _Ended] = SimpleQueue()
        self._inner: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._is_waiting, self._changing = False, threading.Lock()
        self._fault: BaseException | None = None
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def run(self, call: Callable[[], T]) -> T:
        """Run a call in the relay's thread, and meanwhile the callbacks in this one.

        What a callback raises is raised when the call has ended. If the call has a result then, the next run() raises
        it, because the result would be lost.
        """
        if self._fault is not None:
            raise self._taken_fault()
        self._calls.put(call)
        while not isinstance(step := self._steps.get(), _Ended):
            try:
                step()
            except Exception as fault:
                self._fault = self._fault or fault
        if step.fault is not None:
            raise step.fault
        if self._fault is not None and not step.value:
            raise self._taken_fault()
        return step.value

    def hand(self, callback: Callable[[], None]) -> threading.Event:
        """Let the thread in `run` call it; the event is set when it has ended."""
        done = threading.Event()

        def step() -> None:
            try:
                callback()
            finally:
                done.set()
                self._inner.put(_nothing)

        self._steps.put(step)
        return done

    def wait(self, done: threading.Event, wait_s: float) -> None:
        """In the relay's thread: wait for a callback, and execute its calls of `inside`."""
        ends = time.monotonic() + wait_s
        with self._changing:
            self._is_waiting = True
        while not done.is_set() and (left := ends - time.monotonic()) > 0:
            try:
                self._inner.get(timeout=left)()
            except Empty:
                break
        with self._changing:
            self._is_waiting = False
        while not self._inner.empty():
            self._inner.get()()

    def inside(self, call: Callable[[], T]) -> T:
        """In the thread of callbacks: execute a call of the library where the library waits, if it does."""
        answers: SimpleQueue[_Ended] = SimpleQueue()
        with self._changing:
            is_waiting = self._is_waiting
            if is_waiting:
                self._inner.put(lambda: answers.put(_ended(call)))
        found = answers.get() if is_waiting else _ended(call)
        if found.fault is not None:
            raise found.fault
        return found.value

    def end(self) -> None:
        """End the thread; run() must not be called any more."""
        self._calls.put(None)

    def _taken_fault(self) -> BaseException:
        fault, self._fault = self._fault, None
        assert fault is not None
        return fault

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            self._steps.put(_ended(call))


def within(timeout_s: float, call: Callable[[], T], name: str) -> T:
    """The result of a call that may block for longer than its library promises; it runs in a thread of its own.

    Raises TimeoutError: it has not ended in time. It goes on, and what it uses ends with it.
    """
    answers: SimpleQueue[_Ended] = SimpleQueue()
    threading.Thread(target=lambda: answers.put(_ended(call)), name=name, daemon=True).start()
    try:
        found = answers.get(timeout=timeout_s)
    except Empty:
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None
    if found.fault is not None:
        raise found.fault
    value: T = found.value
    return value


def _ended(call: Callable[[], Any]) -> _Ended:
    try:
        return _Ended(call(), None)
    except BaseException as fault:
        return _Ended(None, fault)


def _nothing() -> None:
    """Wakes the thread that waits."""
