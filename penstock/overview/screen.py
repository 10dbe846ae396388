"""A terminal's alternate screen, drawn whole and at once, so that it does not flicker; keys without Enter."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
SIZE = (80, 24)
QUIT = b"qQ\x03\x1b"


class FullScreen:
    """Entered, it owns the terminal; left, also by an error, the terminal is as it was before."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._before: list | None = None
        self._wake, self._woken = -1, -1

    def __enter__(self) -> "FullScreen":
        self._before = termios.tcgetattr(self._input)
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        tty.setcbreak(self._input)
        signal.signal(signal.SIGWINCH, self._on_resize)
        signal.signal(signal.SIGTERM, self._on_stop)
        self._write(ENTER)
        return self

    def __exit__(self, kind: type | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self._write(LEAVE)
        for number in (signal.SIGWINCH, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if self._before is not None:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
        os.close(self._wake)
        os.close(self._woken)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as of now: COLUMNS and LINES of the environment are those of the start."""
        try:
            found = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            return SIZE
        return (found.columns, found.lines) if found.columns and found.lines else SIZE

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the screen: one write, each line cleared behind its end. The last line has no line end."""
        text = f"{CLEAR_LINE}\n".join(lines)
        self._write(f"{HOME}{text}{CLEAR_LINE}{CLEAR_BELOW}")

    def wait(self, seconds: float) -> bool:
        """Wait for the time, a key or a resize; False: the user quits."""
        ready, _, _ = select.select([self._input, self._woken], [], [], max(0.0, seconds))
        if self._woken in ready:
            os.read(self._woken, 64)
        if self._input in ready:
            key = os.read(self._input, 16)
            return bool(key) and key[:1] not in QUIT
        return True

    def _on_resize(self, number: int, frame: FrameType | None) -> None:
        os.write(self._wake, b"w")

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
