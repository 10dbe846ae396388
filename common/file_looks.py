"""Looks at files that an operator may replace while their process runs."""

import os
from collections.abc import Iterable


class FileLooks:
    """Tells that files have changed once two looks have found the same: they may be written one after the other.

    Made before the files are read, so that a change in between is seen.
    """

    def __init__(self, paths: Iterable[str | None]) -> None:
        self._paths = [path for path in paths if path is not None]
        self._read = self._seen = self._stamps()

    def are_changed(self) -> bool:
        """Look at the files. Blocks on the disk."""
        stamps = self._stamps()
        is_settled, self._seen = stamps == self._seen, stamps
        return is_settled and stamps != self._read

    def accept(self) -> None:
        """Count the files as read in the state of the last look."""
        self._read = self._seen

    def _stamps(self) -> list[tuple[int, ...]]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: str) -> tuple[int, ...]:
    try:
        state = os.stat(path)
    except OSError as error:
        return (error.errno or 0,)
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino, state.st_dev
