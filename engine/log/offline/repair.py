"""Repairing a directory: what can be rebuilt from the log is rebuilt, and nothing that verifies is ever removed.

The tail and the view are left to the engine's own recovery. It cuts durably before anything is written after the end,
and can be repeated after a crash at any point.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.config import LogConfig
from engine.env.base import Env
from engine.env.real import RealEnv
from engine.log.log import open_log
from engine.log.offline.directory import Directory, SegmentFile, opened
from engine.log.offline.finding import INDEX, LEFTOVER, TAIL, VIEW, Finding
from engine.log.offline.verify import verify
from engine.log.segment.segment import open_segment
from engine.log.write.sealer import ensure_index

_WORDS = {
    INDEX: "rebuild the index from its segment",
    VIEW: "rebuild the view from the log (the old one is kept beside it as state.damaged)",
    TAIL: "cut what follows the last whole batch",
    LEFTOVER: "remove",
}


@dataclass(frozen=True)
class RepairStep:
    """One repair."""

    mend: str
    file: str
    position: int
    bytes: int

    def __str__(self) -> str:
        at = f" position={self.position} bytes={self.bytes}" if self.mend == TAIL else ""
        return f"file={self.file}{at}: {_WORDS[self.mend]}"

    def to_value(self) -> dict[str, Any]:
        """The step as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class RepairPlan:
    """Repairs to do, and the damage that stays: lost records, in bytes that are left where they are."""

    directory: str
    steps: list[RepairStep]
    stays: list[Finding]
    segment_bytes: int


def plan(given: Path) -> RepairPlan:
    """Verify the directory and plan its repair. Changes nothing."""
    found: list[Finding] = []
    with opened(given) as directory:
        verify(directory, found.append)
        sizes = [segment.header.size for segment in directory.segments if segment.sound]
        path = directory.path
    size = sizes[-1] if sizes else LogConfig().segment_bytes
    return RepairPlan(path, list(_steps(found, path)), [each for each in found if not each.mend], size)


def carry_out(wanted: RepairPlan) -> Iterator[RepairStep]:
    """Do the repairs one by one; each is yielded when it is done and durable.

    Raises LockedError, and what open_log raises. After a crash in between, plan again.
    """
    env = RealEnv()
    for step in wanted.steps:
        if step.mend == LEFTOVER:
            env.unlink(step.file)
            env.sync_directory(os.path.dirname(step.file))
            yield step
    yield from _build_indexes(env, wanted)
    if any(step.mend in (VIEW, TAIL) for step in wanted.steps):
        yield from _recover(env, wanted)


def _steps(found: Iterable[Finding], directory: str) -> Iterator[RepairStep]:
    """One step per file and kind of repair. The view comes last, since it is rebuilt from the indexes."""
    seen = set()
    for mend in (LEFTOVER, INDEX, TAIL, VIEW):
        for each in found:
            file = f"{directory}/state" if mend == VIEW else each.file
            if each.mend == mend and (mend, file) not in seen:
                seen.add((mend, file))
                yield RepairStep(mend, file, each.position, each.bytes)


def _build_indexes(env: Env, wanted: RepairPlan) -> Iterator[RepairStep]:
    steps = {step.file: step for step in wanted.steps if step.mend == INDEX}
    if not steps:
        return
    with opened(Path(wanted.directory)) as directory:
        for segment in directory.segments:
            if step := steps.get(segment.index_path):
                _build_index(env, directory, segment)
                yield step


def _build_index(env: Env, directory: Directory, segment: SegmentFile) -> None:
    env.unlink(segment.index_path)
    made = open_segment(env, os.path.dirname(segment.path), segment.base, segment.header)
    try:
        ensure_index(env, directory.batches(), made)
    finally:
        made.close()


def _recover(env: Env, wanted: RepairPlan) -> Iterator[RepairStep]:
    state = f"{wanted.directory}/state"
    if any(step.mend == VIEW for step in wanted.steps) and env.exists(state):
        env.set_aside(state)
        env.sync_directory(wanted.directory)
    log = open_log(env, wanted.directory, LogConfig(segment_bytes=wanted.segment_bytes))
    try:
        log.checkpoint()
    finally:
        log.close()
    yield from (step for step in wanted.steps if step.mend in (VIEW, TAIL))
