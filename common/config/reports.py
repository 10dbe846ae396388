"""Reports of applied configuration versions on one machine: one file per process, locked while the process runs.

The flock makes a report ephemeral: it ends with its holder in every case, and a reused process id cannot revive it.
"""

import fcntl
import json
import os
from pathlib import Path
from urllib.parse import quote, unquote

from common.clock import Clock
from common.config.store import Applied, ConfigVersion, parse_report

REPORT_BYTES = 512  # padded, so that one write replaces the whole report and a reader never sees a mixture


class Reports:
    def __init__(self, directory: Path, clock: Clock):
        self._directory = directory
        self._clock = clock
        self._held: dict[str, int] = {}  # process -> descriptor that holds the lock

    def report(self, process: str, version: ConfigVersion) -> None:
        text = json.dumps({"version": version, "at_ms": self._clock.now_ms()}).encode().ljust(REPORT_BYTES)
        if process not in self._held:
            self._held[process] = self._claim(self._directory / f"{quote(process, safe='')}.{os.getpid()}")
        os.pwrite(self._held[process], text, 0)

    def _claim(self, path: Path) -> int:
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)  # only a probing reader can hold it, for microseconds
            try:
                if os.stat(path).st_ino == os.fstat(fd).st_ino:
                    return fd
            except FileNotFoundError:
                pass
            os.close(fd)  # a reader took it for that of an ended process and removed it: create it again

    def running(self) -> dict[str, Applied]:
        """Reports by process; where several have one name, by the name and the process id."""
        found: dict[str, list[Applied]] = {}
        for path in self._directory.iterdir():
            report = self._read(path)
            if report:
                found.setdefault(unquote(path.stem), []).append(report)
        return {
            process if len(reports) == 1 else f"{process};{report.pid}": report
            for process, reports in found.items()
            for report in reports
        }

    def _read(self, path: Path) -> Applied | None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)  # it is not locked, so its process has ended
            return None
        except BlockingIOError:
            text = os.pread(fd, REPORT_BYTES, 0)
        finally:
            os.close(fd)
        if not text:
            return None  # just claimed, not written yet
        try:
            return parse_report(text, int(path.suffix[1:]))
        except ValueError:
            return None  # not a report of this version

    def close(self) -> None:
        for process, fd in self._held.items():
            (self._directory / f"{quote(process, safe='')}.{os.getpid()}").unlink(missing_ok=True)
            os.close(fd)
        self._held = {}
