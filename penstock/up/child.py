"""One supervised process: start, readiness line, exit, and back-off before the next start."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from penstock.up.plan import ChildPlan

LOG_BYTES_MAX = 16 << 20
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
STEADY_S = 30.0  # after running this long, the next exit counts as the first again
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Child:
    """Owned by the supervisor's single thread. States: not started → starting → ready → ended → starting …

    Invariant: `facts` is {} unless the present process has reported that it serves.
    """

    def __init__(self, plan: ChildPlan) -> None:
        self.plan = plan
        self.name = plan.name
        self.facts: dict[str, Any] = {}
        self.ready_fd = -1
        self.restarts = 0
        self.exits_in_row = 0
        self.ever_ready = False
        self.start_at = 0.0  # monotonic; when an ended child is started again
        self._process: subprocess.Popen[bytes] | None = None
        self._line = b""
        self._started_at = 0.0

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start the process with a fresh readiness pipe, its output appended to the log."""
        self.facts, self._line, self._started_at = {}, b"", time.monotonic()
        with contextlib.ExitStack() as ours:
            command, inherited = self.plan.command, []
            if self.plan.announces:
                self.ready_fd, write_end = os.pipe()
                ours.callback(os.close, write_end)
                command, inherited = [*command, "--ready-fd", str(write_end)], [write_end]
            output = ours.enter_context(open_log(self.plan.log)) if self.plan.log else None
            self._process = self._spawn(command, inherited, output)

    def _spawn(self, command: list[str], inherited: list[int], output: Any) -> "subprocess.Popen[bytes]":
        parent = os.getpid()
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=inherited,
            # The service manager waits for all processes, of which the supervisor tells it.
            env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
            # Ctrl-C at the terminal reaches only the supervisor, which stops its children in order.
            start_new_session=True,
            preexec_fn=lambda: die_with(parent),
        )

    def read_ready(self) -> bool:
        """Read from the readiness pipe; True, with the pipe closed, once the line is complete."""
        chunk = os.read(self.ready_fd, 4096)
        self._line += chunk
        if chunk and not chunk.endswith(b"\n"):
            return False
        self._close_pipe()
        if not self._line.endswith(b"\n"):
            return False  # it closed the pipe without a line: it is about to end
        self.facts = json.loads(self._line)
        self.ever_ready = True
        return True

    def reap(self) -> int | None:
        """Return the exit status if the process has ended since the last call (negative: the signal), else None."""
        status = self._process.poll() if self._process else None
        if status is None:
            return None
        self._process = None
        self._close_pipe()
        self.facts = {}
        self._note_exit()
        return status

    def _note_exit(self) -> None:
        now = time.monotonic()
        self.exits_in_row = 1 if now - self._started_at > STEADY_S else self.exits_in_row + 1
        self.start_at = now + min(BACKOFF_FIRST_S * 2 ** (self.exits_in_row - 1), BACKOFF_MAX_S)

    def signal(self, number: int) -> None:
        if self._process:
            self._process.send_signal(number)

    def log_tail(self, lines: int = 8) -> str:
        """The end of its log, which shows why it ended."""
        try:
            with open(self.plan.log or os.devnull, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - 8192))
                return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def _close_pipe(self) -> None:
        if self.ready_fd >= 0:
            os.close(self.ready_fd)
            self.ready_fd = -1


def open_log(path: Path) -> Any:
    """Open for appending. A log above LOG_BYTES_MAX is renamed to `.1`, the only older generation."""
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_suffix(".log.1"))
    return open(path, "ab", buffering=0)


def trim_log(path: Path) -> None:
    """Copy a log above LOG_BYTES_MAX to `.1` and empty it, while its process goes on appending to it.

    Without room for the copy its lines are dropped: a log must not fill the disk whose fullness it reports.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size > LOG_BYTES_MAX:
            older = path.with_suffix(".log.1")
            try:
                shutil.copyfile(path, older)
            except OSError:
                older.unlink(missing_ok=True)
            os.truncate(path, 0)


def die_with(parent: int) -> None:
    """In the child, before exec: let the kernel kill it when the supervisor ends, in every case.

    KILL and not TERM: the log survives it by design, and a hanging process must not outlive its supervisor.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before the request above was in place
