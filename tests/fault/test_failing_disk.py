"""A real engine whose calls on files return errors, by call, kind of file and error, under senders and a consumer.

Whatever fails: what was answered OK is in the log at its offset, what was refused is not, and the engine goes on by
itself, or ends and goes on when it is started again.
"""

import contextlib
import errno
import signal
import subprocess
import sys
import threading

import pytest

from engine.link.pull import decode_answer, encode_pull
from engine.link.record import split_records
from tests import link_bytes as raw
from tests.e2e.test_engine_process import EngineProcess, read_all, whole
from tests.fault.failing_processes import CALLS, EXIT_FATAL, NumberedSender
from tests.services.failing_disk import READ, FailingDisk
from tests.waiting import until

BODY = bytes(60_000)  # 17 of them fill a segment of 1 MiB, so every case seals segments


class Senders(NumberedSender):
    """One caller that appends to queue 0; `stored` has the offsets."""

    def ask(self, link: raw.RawLink, topic_id: int, number: int) -> tuple[int, int]:
        body = b"%08d" % number + BODY
        code, payload = link.ask(raw.APPEND, raw.append(raw.FSYNC, raw.batch(topic_id, 0, [body])))
        if code:
            return code, 0
        ((code, offset),) = raw.results(payload)
        return code, offset


def ended(engine: EngineProcess) -> bool:
    return engine.process.poll() is not None


def hurt(engine: EngineProcess, disk: FailingDisk, senders: Senders, calls: int, part: str, error: int) -> bool:
    """Fail calls while a segment's worth of messages is sent; returns whether the engine has ended."""
    before = senders.tried
    with disk.failing(calls, part, error):
        until(lambda: disk.failed and (ended(engine) or senders.tried >= before + 25), "calls that failed", 20)
        return ended(engine)


def consumed(engine: EngineProcess) -> dict[int, int]:
    """Messages in queue 0 by number, with their offsets, as a group gets them; it acknowledges all."""
    link, found, empty = engine.link(), {}, 0
    while empty < 3:
        code, payload = link.ask(raw.PULL, encode_pull("g", [("orders", 2)], max_messages=1000, wait_ms=200))
        assert code == 0, payload
        _, pieces = decode_answer(payload)
        for piece in pieces:
            for at, (_, message) in enumerate(split_records(piece.records)):
                assert int(message[:8]) not in found
                found[int(message[:8])] = piece.first_offset + at
        link.ask(raw.PULL, encode_pull("g", [("orders", 2)], max_messages=0, acks=[whole(each) for each in pieces]))
        empty = 0 if pieces else empty + 1
    return found


def assert_true_answers(engine: EngineProcess, senders: Senders) -> None:
    """A batch that could not be read rests for up to 16 seconds."""

    def read() -> dict[int, int]:
        return {int(message[:8]): offset for offset, message in read_all(engine.link())}

    kept = until(lambda: (found := read()).keys() >= senders.stored.keys() and found, "all that was stored", 20)
    assert {number: kept.get(number) for number in senders.stored} == senders.stored
    assert not senders.refused & kept.keys()
    assert consumed(engine) == kept


def assert_sound(engine: EngineProcess) -> None:
    """The stopped engine's log verifies, but for a tail that was never confirmed."""
    assert engine.end() == 0
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "log", "verify", str(engine.data)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("call", "part", "error"),
    [
        ("write", ".seg", errno.EIO),
        ("write", ".seg", errno.ENOSPC),
        ("sync", ".seg", errno.EIO),
        ("open", ".seg", errno.EMFILE),
        ("open", ".seg", errno.ENOSPC),
        ("open", ".seg", errno.EIO),
        ("allocate", ".seg", errno.ENOSPC),
        ("allocate", ".seg", errno.EIO),
        ("write", ".idx", errno.EIO),
        ("open", ".idx", errno.EMFILE),
        ("rename", ".idx", errno.EIO),
        ("write", "/state/", errno.EIO),
        ("write", "/state/", errno.ENOSPC),
        ("sync", "/state/", errno.EIO),
        ("open", "/state/", errno.EMFILE),
        ("read", "/state/", errno.EIO),
    ],
    ids=lambda value: errno.errorcode.get(value, value),
)
def test_answers_are_true_and_sends_go_on_after(failing_engine, failing_disk, call, part, error):
    senders = Senders(failing_engine)
    try:
        senders.wait_for(40, "before the errors")
        if hurt(failing_engine, failing_disk, senders, CALLS[call], part, error):
            assert failing_engine.process.returncode == EXIT_FATAL
            failing_engine.start()
        senders.wait_for(40, "after the errors")
    finally:
        senders.stop()
    assert_true_answers(failing_engine, senders)
    assert_sound(failing_engine)


@pytest.mark.parametrize("part", [".seg", ".idx", "/state/"])
def test_a_reader_gets_all_once_the_disk_reads_again(failing_engine, failing_disk, part):
    senders = Senders(failing_engine)
    try:
        senders.wait_for(60, "before the errors")
    finally:
        senders.stop()
    failing_engine.end()
    failing_engine.start()  # nothing is in memory
    link = failing_engine.link()
    with failing_disk.failing(READ, part):
        _, pieces = decode_answer(link.ask(raw.PULL, encode_pull("other", [("orders", 2)], max_messages=100))[1])
        assert failing_disk.failed or pieces or part == "/state/"
    assert_true_answers(failing_engine, senders)
    assert_sound(failing_engine)


@pytest.mark.parametrize("part", [".idx", "/state/"])
def test_a_killed_engine_that_cannot_read_ends_with_a_sentence_or_starts_and_has_all_later(
    failing_engine, failing_disk, part, capfd
):
    senders = kill_under_load(failing_engine)
    with failing_disk.failing(READ, part, least=4096), contextlib.suppress(AssertionError):
        failing_engine.start()
    if not ended(failing_engine):
        failing_engine.end(signal.SIGKILL)
    else:
        assert failing_engine.process.returncode == 1
        assert f"{failing_engine.data}/" in capfd.readouterr().err.splitlines()[-1]
    failing_engine.start()
    assert_true_answers(failing_engine, senders)


def test_a_start_waits_for_a_disk_that_cannot_read_its_segments_for_a_moment(failing_engine, failing_disk):
    senders = kill_under_load(failing_engine)
    start = threading.Thread(target=failing_engine.start)
    with failing_disk.failing(READ, ".seg", least=4096):
        start.start()
        until(lambda: failing_disk.failed, "reads that failed", 20)
        assert start.is_alive()
    start.join(30)
    assert_true_answers(failing_engine, senders)
    assert_sound(failing_engine)


def kill_under_load(engine: EngineProcess) -> Senders:
    senders = Senders(engine)
    try:
        senders.wait_for(60, "before the kill")
        engine.end(signal.SIGKILL)
    finally:
        senders.stop()
    return senders
