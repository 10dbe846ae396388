"""A directory of a proxy as an argument. One that holds something else is refused: that nothing waits there would say nothing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


class StoreDirectory(click.Path):
    """A path to the directory itself, not to one above or below it.

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
