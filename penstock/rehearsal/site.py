"""The Penstock of a rehearsal: a temporary directory, and the `penstock up` that serves it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from migration.rehearsal.names import rehearsal_name
from penstock.rehearsal.errors import RehearsalFailed
from penstock.up.files import read_running

PENSTOCK = (sys.executable, "-P", "-m", "penstock")
READY_S_MAX, STOP_S_MAX, REPLACED_S_MAX = 60.0, 30.0, 60.0
LOOK_S = 0.02
OUTPUT = "up.out"
TAIL_CHARS = 2_000


def directory_of(run: str) -> Path:
    """The directory of a rehearsal on this machine."""
    return Path(tempfile.gettempdir()) / rehearsal_name(run)


class RehearsalSite:
    """
    Attributes:
        data: the data directory, which `remove` deletes.
    """

    def __init__(self, run: str) -> None:
        self.data = directory_of(run)
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Make the directory, which nobody else may read. Raises OSError: it is there."""
        self.data.mkdir(mode=0o700)

    def start(self, kafka_files: Sequence[str] = ()) -> None:
        """Start it on free ports and return when all its processes serve.

        It has its own process group: an interrupt of the terminal must not reach it before the load has ended.
        Raises RehearsalFailed.

        Args:
            kafka_files: of the cluster's definition, which its bridge may read.
        """
        rooms = sorted({str(Path(each).resolve().parent) for each in kafka_files if each})
        line = [*PENSTOCK, "up", "--data", str(self.data), "--ports", "auto", "--no-console"]
        line += [part for each in rooms for part in ("--kafka-files", each)]
        with (self.data / OUTPUT).open("wb") as out:
            self._process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + READY_S_MAX
        while read_running(self.data) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                told = (self.data / OUTPUT).read_text(errors="replace")[-TAIL_CHARS:]
                raise RehearsalFailed(f"penstock up of the rehearsal does not serve: {' '.join(told.split())}")
            time.sleep(LOOK_S)

    def facts(self) -> dict[str, Any]:
        """Addresses and pids. Raises RehearsalFailed."""
        found = read_running(self.data)
        if found is None:
            raise RehearsalFailed("penstock up of the rehearsal has ended")
        return found

    def address(self, process: str) -> tuple[str, int]:
        """Where a proxy serves. Raises ConnectionError: it does not now."""
        found = (read_running(self.data) or {}).get(process)
        if found is None:
            raise ConnectionError(f"{process} does not serve")
        return found["host"], found["port"]

    def begin(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        """Start a command on this Penstock, as an operator would."""
        line = [*PENSTOCK, *arguments, "--data", str(self.data)]
        return subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def kill(self, process: str) -> None:
        """SIGKILL one of its processes and wait until another one serves in its place. Raises RehearsalFailed."""
        pid = self.facts()["pids"][process]
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + REPLACED_S_MAX
        while (read_running(self.data) or {"pids": {process: pid}})["pids"].get(process, pid) in (pid, 0):
            if time.monotonic() > deadline:
                raise RehearsalFailed(f"{process} was killed, and is not started again within {REPLACED_S_MAX:.0f} s")
            time.sleep(LOOK_S)

    def stop(self) -> None:
        """Stop all its processes, also those that an earlier process of this command has started."""
        if self._process is None:
            if (pid := self._earlier_up()) is not None:
                os.kill(pid, signal.SIGTERM)
                self._wait_ended()
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def remove(self) -> bool:
        """Delete the directory. Returns whether there was one."""
        was_there = self.data.exists()
        shutil.rmtree(self.data, ignore_errors=True)
        return was_there

    def _earlier_up(self) -> int | None:
        """Pid of the `up` that an earlier process of this command has started. It may not serve yet, so that its files do
        not name it.
        """
        wanted = os.fsencode(f"\0up\0--data\0{self.data}\0")
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended
                if wanted in line.read_bytes():
                    return int(line.parent.name)
        return None

    def _wait_ended(self) -> None:
        deadline = time.monotonic() + STOP_S_MAX
        while self._earlier_up() is not None:
            if time.monotonic() > deadline:
                raise RehearsalFailed(f"{self.data}: its penstock up does not stop within {STOP_S_MAX:.0f} s")
            time.sleep(LOOK_S)
