"""Folders below DIR/diverged, which have what replication has taken out of a log: listed and removed.

    EPOCH-POSITION   above that position another master's log went on
    renewed-N        a whole log, put aside because the master's begins later
    damaged          bytes that a repair from another broker has overwritten

No engine reads them, so they may be listed and removed while one runs.
"""

import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from engine.log.offline.directory import NoLogError

DIVERGED = "diverged"
KINDS = {
    "truncated": re.compile(r"\d+-\d+"), "renewed": re.compile(r"renewed-\d+"), "damaged": re.compile("damaged"),
}  # fmt: skip


class DivergedFolder(NamedTuple):
    """One of them. `at_ms`: Unix time of its last change."""

    name: str
    kind: str
    segments: int
    bytes: int
    at_ms: int

    def to_value(self) -> dict[str, Any]:
        return self._asdict()


def diverged_folders(directory: Path) -> list[DivergedFolder]:
    """All that are there, oldest first; none, if nothing has diverged. Raises OSError."""
    folder = directory / DIVERGED
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    found = [(name, kind) for name in names for kind, pattern in KINDS.items() if pattern.fullmatch(name)]
    return sorted((_looked_at(folder / name, kind) for name, kind in found), key=lambda each: (each.at_ms, each.name))


def _looked_at(path: Path, kind: str) -> DivergedFolder:
    states = [each.stat() for each in path.rglob("*.seg")]
    at_ms = max(state.st_mtime_ns for state in (path.stat(), *states)) // 1_000_000
    return DivergedFolder(path.name, kind, len(states), sum(state.st_size for state in states), at_ms)


def remove_diverged(directory: Path, name: str) -> DivergedFolder:
    """Remove one of them for good. Raises NoLogError: there is none of that name; OSError."""
    for each in diverged_folders(directory):
        if each.name == name:
            shutil.rmtree(directory / DIVERGED / name)
            return each
    raise NoLogError(f"{directory / DIVERGED}: has no folder {name}: `penstock log diverged {directory}` lists them")
