"""Reports of applied configuration versions on one machine: one file per process, held while the process runs."""

import json
import os
from pathlib import Path
from urllib.parse import quote, unquote

from common.clock import Clock
from common.config.held_files import hold, is_at, read_held
from common.config.store import Applied, ConfigVersion, parse_report

REPORT_BYTES = 512  # padded, so that one write replaces the whole report and a reader never sees a mixture


class Reports:
    def __init__(self, directory: Path, clock: Clock):
        self._directory = directory
        self._clock = clock
        self._held: dict[str, int] = {}  # process -> descriptor that holds the lock

    def report(self, process: str, version: ConfigVersion) -> None:
        text = json.dumps({"version": version, "at_ms": self._clock.now_ms()}).encode().ljust(REPORT_BYTES)
        path = self._directory / f"{quote(process, safe='')}.{os.getpid()}"
        if process in self._held and not is_at(path, self._held[process]):
            os.close(self._held.pop(process))  # the directory has lost its content
        if process not in self._held:
            while (fd := hold(path)) is None:
                pass  # only a probing reader can hold it, for microseconds
            self._held[process] = fd
        os.pwrite(self._held[process], text, 0)

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
        text = read_held(path, REPORT_BYTES)
        if text is None:
            return None
        try:
            pid = int(path.suffix[1:])
            # A file that is just made tells that there is a process, which has applied nothing that is known.
            return parse_report(text, pid) if text else Applied({}, pid, self._clock.now_ms())
        except ValueError:
            return None  # not a report of this version

    def close(self) -> None:
        for process, fd in self._held.items():
            (self._directory / f"{quote(process, safe='')}.{os.getpid()}").unlink(missing_ok=True)
            os.close(fd)
        self._held = {}
