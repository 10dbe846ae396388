"""Signals as bytes on a pipe, so that one `poll` waits for children, readiness and the operator."""

import os
import signal
from types import FrameType, TracebackType

STOPS = (signal.SIGTERM, signal.SIGINT)
HANG_UP = signal.SIGHUP
"""Stops `up` on a terminal, which has been closed. Without one it is a LOOK: services are asked so to read again."""
LOOK = signal.SIGUSR1
"""Asks `up` to look at the configuration again: it may need a process that it did not need before."""


class SignalPipe:
    """While entered, stop signals are counted in `stops`, LOOK in `looks`, and every signal wakes a poll of `fd`."""

    def __init__(self) -> None:
        self.stops = self.looks = 0
        self.fd, self._write_fd = -1, -1

    def __enter__(self) -> "SignalPipe":
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # the default action would not wake the poll
        for number in STOPS:
            signal.signal(number, self._on_stop)
        signal.signal(LOOK, self._on_look)
        signal.signal(HANG_UP, self._on_stop if os.isatty(0) else self._on_look)
        return self

    def __exit__(self, kind: type | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, LOOK, HANG_UP, *STOPS):
            signal.signal(number, signal.SIG_DFL)
        os.close(self.fd)
        os.close(self._write_fd)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self.stops += 1

    def _on_look(self, number: int, frame: FrameType | None) -> None:
        self.looks += 1

    def drain(self) -> None:
        try:
            while os.read(self.fd, 512):
                pass
        except BlockingIOError:
            pass
