"""Text files that commands read as a whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from penstock.terminal.exits import USAGE, CommandError

LINE_CHARS_MAX = 64 << 10


def lines_of(file: TextIO) -> Iterator[str]:
    """Its lines; one that is too long comes in pieces. Raises as `text_of` does."""
    with _understood(file):
        while line := file.readline(LINE_CHARS_MAX):
            yield line


def text_of(file: TextIO, chars_max: int) -> str:
    """The content, of which one character more than `chars_max` is read at most: what is longer is refused by its reader.

    Raises CommandError for what is no UTF-8, or cannot be read.
    """
    with _understood(file):
        return file.read(chars_max + 1)


@contextmanager
def _understood(file: TextIO) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise CommandError(f"{file.name}: not UTF-8: {error.reason} at byte {error.start:,}", USAGE) from error
    except OSError as error:
        raise CommandError(f"{file.name}: {error.strerror}", USAGE) from error
