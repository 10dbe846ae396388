"""Side files of segments (indexes, checked ids, lookup files, partial indexes) and their total size."""

from collections.abc import Iterable

from engine.env.base import Env
from engine.log.format import segment_name

SUFFIX, INDEX_SUFFIX = ".seg", ".idx"
SIDE_SUFFIXES = (INDEX_SUFFIX, ".dup", ".mid", ".key")
"""Suffixes of files that are made from a segment, lie beside it, and are deleted with it."""


def segment_bases(names: Iterable[str]) -> list[int]:
    """Bases of the segments among these file names, in order."""
    found = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(base) for base in found if base.isdigit())


def side_files(path: str) -> list[str]:
    """Paths of the files that may lie beside the segment of that path."""
    return [path.removesuffix(SUFFIX) + suffix for suffix in SIDE_SUFFIXES]


class SideFiles:
    """Total size, kept by notifications instead of listing a directory of thousands. Methods may run in any thread."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._sizes: dict[str, int] = {}

    @property
    def size_bytes(self) -> int:
        """Size of all of them."""
        return sum(tuple(self._sizes.values()))

    def weigh(self, path: str) -> None:
        """Measure a file that has come, changed or gone."""
        size = self._env.size(path)
        if size:
            self._sizes[path] = size
        else:
            self._sizes.pop(path, None)

    def weigh_all(self, directory: str, bases: Iterable[int]) -> None:
        """Measure the files beside these segments. Some microseconds each."""
        for base in bases:
            for path in side_files(f"{directory}/{segment_name(base)}"):
                self.weigh(path)
