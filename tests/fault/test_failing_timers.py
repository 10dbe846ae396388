"""Delayed messages on a device that returns errors while they are stored, become due and are fired."""

import contextlib
import errno
import signal
import threading
import time
from collections import Counter

import pytest

from engine.link import layout
from engine.link.append import FSYNC
from engine.link.errors import LinkError
from engine.link.timer import Timer, decode_added, encode_add
from tests import link_bytes as raw
from tests.e2e.test_engine_process import EngineProcess, read_all, topic
from tests.services.failing_disk import ALLOCATE, OPEN, READ, SYNC, WRITE
from tests.waiting import until

BODY = bytes(20_000)
DELAY_MS = 1500
EXIT_FATAL = 70
CALLS = {"read": READ, "write": WRITE, "sync": SYNC, "open": OPEN, "allocate": ALLOCATE}


class Delayer:
    """Stores numbered messages with a delay, one after another."""

    def __init__(self, engine: EngineProcess) -> None:
        self.accepted: dict[int, int] = {}
        """Earliest moment at which it may come, in Unix ms, by number."""
        self.refused: set[int] = set()
        self.tried = 0
        self._engine, self._done = engine, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(30)

    def wait_for(self, more: int) -> None:
        goal = len(self.accepted) + more
        until(lambda: len(self.accepted) >= goal, f"{more} more delayed messages", 30)

    def _run(self) -> None:
        while not self._done.is_set():
            with contextlib.suppress(OSError, LinkError, AssertionError, KeyError):
                link = self._engine.link()
                topic_id = topic(link)
                while not self._done.is_set():
                    self._send(link, topic_id)
            self._done.wait(0.01)

    def _send(self, link: raw.RawLink, topic_id: int) -> None:
        number, self.tried = self.tried, self.tried + 1
        record = b"\1" + number.to_bytes(16, "big") + b"%08d" % number + BODY
        due_ms = time.time_ns() // 1_000_000 + DELAY_MS
        timer = Timer(due_ms, topic_id, 0, 0, 0, 0, 0, 1, 1, 16, 0, record)
        code, payload = link.ask(layout.TIMER_ADD, encode_add(FSYNC, [timer]))
        if code == 0:
            ((code, _, _),) = decode_added(payload)
        if code == 0:
            self.accepted[number] = due_ms
        elif code in (203, 205):
            self.refused.add(number)
            self._done.wait(0.005)


def fired(engine: EngineProcess) -> Counter[int]:
    return Counter(int(message[:8]) for _, message in read_all(engine.link()))


@pytest.mark.parametrize(
    ("call", "part", "error"),
    [
        ("read", ".seg", errno.EIO),
        ("open", ".seg", errno.EMFILE),
        ("write", ".seg", errno.ENOSPC),
        ("write", ".seg", errno.EIO),
        ("sync", ".seg", errno.EIO),
        ("allocate", ".seg", errno.ENOSPC),
        ("write", "/state/", errno.EIO),
        ("read", "/state/", errno.EIO),
        ("read", "/engine/", errno.EIO),
    ],
    ids=lambda value: errno.errorcode.get(value, value),
)
def test_each_delayed_message_that_was_taken_comes_once_and_no_refused_one(
    failing_engine, failing_disk, call, part, error
):
    delayer = Delayer(failing_engine)
    try:
        delayer.wait_for(60)
        with failing_disk.failing(CALLS[call], part, error):
            before, began_s = delayer.tried, time.monotonic()

            def met() -> bool:
                lasted = time.monotonic() - began_s > DELAY_MS / 1000 + 0.5  # some become due meanwhile
                return failing_disk.failed > 0 and (
                    failing_engine.process.poll() is not None or (lasted and delayer.tried > before)
                )

            until(met, "calls that failed", 20)
        if failing_engine.process.poll() is not None:
            assert failing_engine.process.returncode == EXIT_FATAL
            failing_engine.start()
        delayer.wait_for(30)
    finally:
        delayer.stop()
    until(lambda: fired(failing_engine).keys() >= delayer.accepted.keys(), "all that were accepted", 40)
    if call == "read":
        failing_engine.end(signal.SIGKILL)
        failing_engine.start()
    found = fired(failing_engine)
    assert set(found.values()) == {1}
    assert not found.keys() & delayer.refused
