"""A real process with a log: killed while it writes, and failed by the kernel under it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from log_writer import body

from engine.config import LogConfig
from engine.env.real import EXIT_FATAL, RealEnv
from engine.errors import LockedError
from engine.log import open_log
from engine.log.format import split_records
from engine.log.write.native import NATIVE

ROOT = Path(__file__).resolve().parents[2]
WRITER = [sys.executable, str(ROOT / "tests" / "fault" / "log_writer.py")]
CONFIG = LogConfig(segment_bytes=1 << 20)


def start(directory: Path, *arguments: str, before: tuple[str, ...] = (), pure: bool = False) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | ({"PENSTOCK_PURE": "1"} if pure else {})
    return subprocess.Popen(
        [*before, *WRITER, str(directory), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )


def last_confirmed(lines: list[str]) -> int:
    """The highest number that the writer promised in a whole line."""
    return max(
        (int(line.split()[1]) for line in lines if line.startswith("confirmed ") and line.endswith("\n")), default=0
    )


def records(directory: Path) -> list[bytes]:
    """All records, after a recovery."""
    log = open_log(RealEnv(), str(directory), CONFIG)
    found: list[bytes] = []
    while log.topic("topic"):
        pieces = log.read(1, 0, len(found), 1000, 1 << 20)
        if not pieces:
            break
        for piece in pieces:
            found += split_records(piece.records)
    assert log.damage == []
    log.close()
    return found


@pytest.mark.parametrize("pure", [False, True])
def test_a_killed_writer_loses_nothing_that_it_confirmed(tmp_path, pure):
    confirmed = 0
    for round_ in range(4):
        writer = start(tmp_path, pure=pure)
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(150 * (round_ + 1))]
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate(timeout=30)
        confirmed = last_confirmed([*lines, *rest.splitlines(keepends=True)])
        found = records(tmp_path)
        assert confirmed > 0 and len(found) >= confirmed
        assert found == [body(number) for number in range(len(found))]


def test_a_second_process_on_the_directory_is_refused(tmp_path):
    writer = start(tmp_path)
    assert writer.stdout is not None
    writer.stdout.readline()
    try:
        with pytest.raises(LockedError, match=str(writer.pid)):
            open_log(RealEnv(), str(tmp_path), CONFIG)
    finally:
        writer.kill()
        writer.communicate()
    open_log(RealEnv(), str(tmp_path), CONFIG).close()


needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")


def injected(tmp_path: Path, calls: str, what: str, **options) -> tuple[int, str, int]:
    """Run the writer with a fault; returns (exit code, errors, what it had confirmed)."""
    strace = (
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "--seccomp-bpf",
        "-e",
        f"trace={calls}",
        "-e",
        f"inject={calls}:{what}",
    )
    writer = start(tmp_path, "4000", before=strace, **options)
    out, errors = writer.communicate(timeout=60)
    return writer.returncode, errors, last_confirmed(out.splitlines(keepends=True))


@needs_strace
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("nth", [12, 20])
def test_a_failed_sync_ends_the_process_and_confirms_nothing_of_it(tmp_path, nth, pure):
    code, errors, confirmed = injected(tmp_path, "fdatasync", f"error=EIO:when={nth}", pure=pure)
    assert code == EXIT_FATAL, errors
    assert "fdatasync failed" in errors or "Input/output error" in errors
    found = records(tmp_path)
    assert len(found) >= confirmed
    assert found == [body(number) for number in range(len(found))]


@needs_strace
@pytest.mark.skipif(not NATIVE, reason="the twin writes by pwrite")
def test_a_write_that_stops_half_way_ends_the_process_and_leaves_whole_records(tmp_path):
    code, errors, confirmed = injected(tmp_path, "pwritev", "error=EIO:when=50")
    assert code == EXIT_FATAL, errors
    assert "failed" in errors
    found = records(tmp_path)
    assert len(found) >= confirmed
    assert found == [body(number) for number in range(len(found))]


@needs_strace
@pytest.mark.skipif(not NATIVE, reason="the twin writes by pwrite")
def test_a_full_disk_refuses_the_append_and_keeps_what_was_written(tmp_path):
    code, errors, confirmed = injected(tmp_path, "pwritev", "error=ENOSPC:when=50")
    assert code == 1 and "DiskFullError" in errors
    found = records(tmp_path)
    assert len(found) == 49 * 8 - 8 >= confirmed
    assert found == [body(number) for number in range(len(found))]
