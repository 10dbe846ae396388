"""Cuts the power under a log or a buffer, again and again: `python -m tests.fault.power_cut ext4|xfs [--writer KIND] [--cuts N]`.

A file system in a file; a process that writes to it and says what it may promise; then, in this order, the
file system is shut down as if the machine had stopped (ioctl FS_IOC_SHUTDOWN), the process is killed, the file system
is mounted again, and the next process recovers and compares. What was read from the pipe before the shutdown was
promised; the rest is unknown. What never left the page cache is gone; a disk's own cache is not part of it.

Run by `unshare --mount`, so that no mount outlives this process, however it ends. Prints a JSON line.
"""

import argparse
import ctypes
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

from tests.fault import power_writer
from tests.fault.power_buffer import BufferWriter, InLists, InStreams, OnDisk

SHUTDOWN = 0x8004587D
DROP_LOG, KEEP_LOG = 2, 1
"""Whether the journal's last entries are lost as well, or only data."""
SIZES = {"ext4": 96 << 20, "xfs": 512 << 20}
MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-J", "size=4"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
CUTS_A_FILE_SYSTEM = 40
SILENCE_S = 60.0
WRITERS: dict[str, Any] = {
    "log": power_writer,
    "disk": BufferWriter(OnDisk),
    "redis-streams": BufferWriter(InStreams),
    "redis-lists": BufferWriter(InLists),
}
PR_SET_CHILD_SUBREAPER = 36


class FileSystem:
    """A file system of that kind in a file, mounted or not."""

    def __init__(self, kind: str, folder: Path, size_bytes: int = 0) -> None:
        self._size_bytes = size_bytes or SIZES[kind]
        self.kind, self._image, self.mount_point = kind, folder / f"{kind}.image", folder / "mounted"
        self.mount_point.mkdir()

    def make(self) -> None:
        """Empty again."""
        with self._image.open("wb") as file:
            file.truncate(self._size_bytes)
        command(*MAKE[self.kind], str(self._image))

    def mount(self) -> None:
        command("mount", "-t", self.kind, "-o", "loop", str(self._image), str(self.mount_point))

    def cut(self, how: int) -> None:
        """From here on nothing reaches the disk any more."""
        directory = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(directory, SHUTDOWN, struct.pack("<I", how))
        finally:
            os.close(directory)

    def unmount(self) -> None:
        command("umount", str(self.mount_point))


class Cuts:
    """A run of cuts on one kind of file system."""

    def __init__(self, system: FileSystem, seed: str, writer: Any, *, careless: bool) -> None:
        self._system, self._chance, self._seed, self._careless = system, Random(seed), seed, careless
        self._writer, self._promises = writer, writer.Promises()
        self.cuts = self.promised = self.checked = self.unknown = self.damaged = self.in_recovery = 0
        self.lost: list[str] = []

    def run(self, cuts: int, seconds: float) -> None:
        """So many, or as many as fit."""
        deadline = time.monotonic() + seconds
        while self.cuts < cuts and time.monotonic() < deadline:
            if self.cuts % CUTS_A_FILE_SYSTEM == 0:
                self._look()
                self._promises = self._writer.Promises()
                self._system.make()
            self._round()
        self._look()

    def _round(self) -> None:
        """Mount, write, cut, kill, unmount."""
        self._system.mount()
        writer, pipe = self._start()
        buffered = b""
        try:
            if self._chance.random() < 0.15:
                self.in_recovery += 1  # wherever the process is by then, in Python's start or in recovery
                select.select([], [], [], self._chance.random() * 0.05)
            else:
                buffered = self._listen(writer, pipe, self._chance.randrange(60))
            self._system.cut(DROP_LOG if self._chance.random() < 0.8 else KEEP_LOG)
        finally:
            self._end(writer, pipe, buffered)
            self._system.unmount()
        self.cuts += 1

    def _look(self) -> None:
        """Once more without a cut, so that the last promises of a file system are compared too."""
        if not self._promises.records:
            return
        self._system.mount()
        writer, pipe = self._start()
        try:
            self._listen(writer, pipe, 0)
        finally:
            self._end(writer, pipe, b"")
            self._system.unmount()

    def _start(self) -> tuple[int, int]:
        """(process, pipe). Forked, because starting Python anew would take longer than the rest of a round."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            return pid, reading
        try:
            os.close(reading)
            data, seed = str(self._system.mount_point / "data"), f"{self._seed}.{self.cuts}"
            self._writer.run(data, writing, self.cuts, seed, self._promises, careless=self._careless)
        except BaseException:
            os.write(writing, b"error " + " | ".join(traceback.format_exc().splitlines()[-4:]).encode() + b"\n")
        os._exit(1)

    def _listen(self, writer: int, pipe: int, promises: int) -> bytes:
        """Take lines until recovery is through and so many promises came; returns the part of a line that is left."""
        checked, buffered = False, b""
        while not checked or promises > 0:
            if not select.select([pipe], [], [], SILENCE_S)[0]:
                raise TimeoutError("the writer is silent")
            data = os.read(pipe, 65_536)
            if not data:
                raise ChildProcessError(f"the writer ended before the cut: {os.waitpid(writer, os.WNOHANG)}")
            *lines, buffered = (buffered + data).split(b"\n")
            promises -= len(lines)
            for line in lines:
                checked = self._take(line) or checked
        return buffered

    def _take(self, line: bytes) -> bool:
        """Whether the line says that all promises were compared."""
        what, _, rest = line.partition(b" ")
        if what == b"error":
            raise ChildProcessError(rest.decode())
        if what == b"lost":
            self.lost.append(f"{self._system.kind} cut {self.cuts}: {rest.decode()}")
        elif what == b"checked":
            records, damage = map(int, rest.split())
            self.checked += records
            self.damaged += damage > 0
            return True
        else:
            self._promises.take(line)
            self.promised += 1
        return False

    def _end(self, writer: int, pipe: int, buffered: bytes) -> None:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        end_orphans()
        rest = bytearray(buffered)
        while data := os.read(pipe, 65_536):
            rest += data
        os.close(pipe)
        for line in rest.splitlines():
            self.unknown += line.startswith((b"ack", b"topic", b"progress"))
            if line.startswith(b"gone"):  # what was about to be removed before the cut nobody may demand afterwards
                self._promises.take(line)


def adopt_orphans() -> None:
    """What a writer has started becomes this process's child when the writer is killed."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed")


def end_orphans() -> None:
    """Kill them, or the file system could not be unmounted."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in map(int, pids):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def command(*arguments: str) -> None:
    """Run it; its error output is the reason when it fails."""
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(arguments)}: {done.stderr.strip()}")


def probe(system: FileSystem) -> str | None:
    """Why there can be no such file system here; None when there can."""
    try:
        system.make()
        system.mount()
        system.cut(DROP_LOG)
        system.unmount()
    except OSError as error:
        return str(error)
    return None


def main() -> None:
    """Run, print the figures, exit with 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(SIZES))
    parser.add_argument("--writer", choices=sorted(WRITERS), default="log", help="what runs while the power is cut")
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=86_400.0, help="end earlier when these are over")
    parser.add_argument("--seed", default=str(time.time_ns()))
    parser.add_argument(
        "--probe", action="store_true", help="only make, mount and unmount one, to see whether it can be"
    )
    parser.add_argument("--careless", action="store_true", help="promise before the sync: must be caught")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-cuts-", ignore_cleanup_errors=True) as folder:
        system = FileSystem(options.kind, Path(folder))
        if options.probe:
            sys.exit(probe(system))
        adopt_orphans()
        cuts = Cuts(system, options.seed, WRITERS[options.writer], careless=options.careless)
        started = time.monotonic()
        cuts.run(options.cuts, options.seconds)
    figures = {
        name: getattr(cuts, name) for name in ("cuts", "promised", "unknown", "checked", "in_recovery", "damaged")
    }
    print(
        json.dumps(
            {"kind": options.kind, "seed": options.seed, **figures, "lost": len(cuts.lost),
             "first_lost": cuts.lost[:5], "seconds": round(time.monotonic() - started, 1)}
        )
    )  # fmt: skip
    sys.exit(1 if cuts.lost else 0)


if __name__ == "__main__":
    main()
