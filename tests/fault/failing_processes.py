"""Processes that a test starts on a device that can be told to fail."""

import contextlib
import threading
from abc import ABC, abstractmethod

import pytest

from engine.link.errors import LinkError
from tests import link_bytes as raw
from tests.e2e.test_engine_process import EngineProcess, topic
from tests.services.failing_disk import ALLOCATE, OPEN, READ, RENAME, SYNC, UNLINK, WRITE, FailingDisk
from tests.waiting import until

CALLS = {
    "read": READ, "write": WRITE, "sync": SYNC, "open": OPEN, "allocate": ALLOCATE, "rename": RENAME, "unlink": UNLINK,
}  # fmt: skip
EXIT_FATAL = 70


class NumberedSender(ABC):
    """A caller that sends numbered messages one after another, over a link that it dials again when it breaks.

    Attributes:
        stored: what the engine answered for each number that it took.
        refused: numbers that were answered "not stored".
        tried: count of all messages sent.
    """

    def __init__(self, engine: EngineProcess) -> None:
        self.stored: dict[int, int] = {}
        self.refused: set[int] = set()
        self.tried = 0
        self._engine, self._done = engine, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @abstractmethod
    def ask(self, link: raw.RawLink, topic_id: int, number: int) -> tuple[int, int]:
        """Send message `number`; returns its code, and the value to keep when that is 0."""

    def wait_for(self, more: int, when: str = "") -> None:
        """Block until `more` further messages are stored."""
        goal = len(self.stored) + more
        until(lambda: len(self.stored) >= goal, f"{more} messages stored {when}", 30)

    def stop(self) -> None:
        self._done.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

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
        code, value = self.ask(link, topic_id, number)
        if code == 0:
            self.stored[number] = value
        elif code in (203, 205):
            self.refused.add(number)
            self._done.wait(0.005)


@pytest.fixture
def failing_disk(tmp_path, monkeypatch):
    """The device of every process that the test starts from now on."""
    made = FailingDisk(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def failing_engine(tmp_path, failing_disk):
    """An engine with segments of 1 MiB, so that every case seals some."""
    made = EngineProcess(tmp_path / "engine", "--segment-mib", "1", "--scrub-mib-s", "0")
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait(10)
