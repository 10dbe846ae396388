"""What lies beside the segments: indexes, checked ids, files of names and runs of them; and how many bytes that is."""

from collections.abc import Iterable

from engine.env.base import Env
from engine.log.format import segment_name

SUFFIX = ".seg"
SIDE_SUFFIXES = (".idx", ".dup", ".mid", ".key")
"""Of what is made from a segment, lies beside it, and is deleted with it."""


def side_files(path: str) -> list[str]:
    """Paths of the files that may lie beside the segment of that path."""
    return [path.removesuffix(SUFFIX) + suffix for suffix in SIDE_SUFFIXES]


class SideFiles:
    """Told of each file that comes, changes or goes, so that nobody has to list a directory of thousands. In any thread."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._sizes: dict[str, int] = {}

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return sum(tuple(self._sizes.values()))

    def weigh(self, path: str) -> None:
        """Look at a file that has come, changed or gone."""
        size = self._env.size(path)
        if size:
            self._sizes[path] = size
        else:
            self._sizes.pop(path, None)

    def weigh_all(self, directory: str, bases: Iterable[int]) -> None:
        """Look at what lies beside these segments. Some microseconds each."""
        for base in bases:
            for path in side_files(f"{directory}/{segment_name(base)}"):
                self.weigh(path)
