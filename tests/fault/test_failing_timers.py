"""Delayed messages on a device that returns errors while they are stored, become due and are fired."""

import errno
import signal
import time
from collections import Counter

import pytest

from engine.link import layout
from engine.link.append import FSYNC
from engine.link.timer import Timer, decode_added, encode_add
from tests import link_bytes as raw
from tests.e2e.test_engine_process import EngineProcess, read_all
from tests.fault.failing_processes import CALLS, EXIT_FATAL, NumberedSender
from tests.waiting import until

BODY = bytes(20_000)
DELAY_MS = 1500


class Delayer(NumberedSender):
    """Stores messages with a delay; `stored` has the earliest moment at which each may come, in Unix ms."""

    def ask(self, link: raw.RawLink, topic_id: int, number: int) -> tuple[int, int]:
        record = b"\1" + number.to_bytes(16, "big") + b"%08d" % number + BODY
        due_ms = time.time_ns() // 1_000_000 + DELAY_MS
        timer = Timer(due_ms, topic_id, 0, 0, 0, 0, 0, 1, 1, 16, 0, record)
        code, payload = link.ask(layout.TIMER_ADD, encode_add(FSYNC, [timer]))
        if code:
            return code, 0
        ((code, _, _),) = decode_added(payload)
        return code, due_ms


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
    until(lambda: fired(failing_engine).keys() >= delayer.stored.keys(), "all that were accepted", 40)
    if call == "read":
        failing_engine.end(signal.SIGKILL)
        failing_engine.start()
    found = fired(failing_engine)
    assert set(found.values()) == {1}
    assert not found.keys() & delayer.refused
