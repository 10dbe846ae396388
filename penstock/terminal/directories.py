"""Directories as arguments: of a proxy, to read; and of the operator, to write files into."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from penstock.terminal.exits import FAILED, CommandError


class StoreDirectory(click.Path):
    """A path to a proxy's directory itself. One that holds something else is refused: that nothing waits there would tell nothing.

    Args:
        name: of what it holds, for the sentence.
        is_store: tells whether a directory holds that.
    """

    def __init__(self, name: str, is_store: Callable[[Path], bool]) -> None:
        super().__init__(exists=True, file_okay=False, path_type=Path)
        self._name, self._is_store = name, is_store

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.is_dir():
            self.fail(f"{path} is not a directory", param, ctx)
        try:
            if not self._is_store(path):
                below = [each.name for each in sorted(path.iterdir()) if each.is_dir() and self._is_store(each)]
                hint = f"; its directory {below[0]} does" if below else ""
                self.fail(f"{path} holds no {self._name}{hint}", param, ctx)
        except OSError as error:
            self.fail(f"{path}: {error.strerror}", param, ctx)
        return path


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Make the directory of `--out` where it is missing. What fails there, also in the block, is the command's error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            yield
    except OSError as error:
        raise CommandError(f"--out {folder}: {error.strerror or error}", FAILED) from error
