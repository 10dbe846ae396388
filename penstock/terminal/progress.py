"""Progress of a long command, on a terminal."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

T = TypeVar("T")
EVERY = 10_000


def say(text: str) -> None:
    """Print a line on stderr that the next one replaces; nothing when stderr is not a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}", err=True, nl=False)


@contextmanager
def shown() -> Iterator[None]:
    """Remove the progress line at the end."""
    try:
        yield
    finally:
        say("")


def counted(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items and show how many have passed."""
    for number, item in enumerate(items):
        if number % EVERY == 0:
            say(f"{number:,} {what}")
        yield item
