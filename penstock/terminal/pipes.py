"""Standard output that takes no more: its reader has gone, as with `| head`, its disk is full, or it is closed."""

import errno
import io
import os
import sys

import click

from common.errors import PenstockError


class OutputFault(PenstockError):
    """Standard output is closed or cannot be written."""


class ClosedOutput(io.TextIOBase):
    """In place of a standard output that is closed: what is printed there is an error, as on a disk that is full."""

    encoding, errors = "utf-8", "strict"

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "closed")


def check_stdout() -> None:
    """Raise OutputFault where it is closed: for commands that take away what they print."""
    if isinstance(sys.stdout, ClosedOutput):
        raise OutputFault("standard output is closed: open it, or send it to /dev/null")


def write_out(data: bytes, *, is_last: bool = True) -> None:
    """Write to standard output, and flush it after the last part.

    Raises OutputFault, after which further output is discarded; BrokenPipeError for a reader that has gone.
    """
    check_stdout()
    try:
        sys.stdout.buffer.write(data)
        if is_last:
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        raise OutputFault(f"standard output: {error.strerror}") from error


def is_of_echo(fault: BaseException) -> bool:
    """Whether click.echo raised it: an OSError of standard output does not name it."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code in (click.echo.__code__, ClosedOutput.write.__code__)


def silence_stdout() -> None:
    """Discard further output: Python must not report the closed pipe at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
