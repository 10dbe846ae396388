"""A disk buffer's directory, read without its lock: for tools, whether its proxy runs or not."""

import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from producer_proxy.buffer.blocks import Block, Gap
from producer_proxy.buffer.disk import dead
from producer_proxy.buffer.disk.segment import BufferSegment, bases
from producer_proxy.buffer.entry import BufferEntry, EntryError, decode


class Waiting(NamedTuple):
    """An entry that is not drained; `reason` is set for one on the dead-letter list."""

    position: int
    entry: BufferEntry
    reason: str | None = None


class BufferDamage(NamedTuple):
    file: str
    offset: int
    size_bytes: int
    torn: bool


def survey(directory: Path) -> Iterator[Waiting | BufferDamage]:
    """All entries that wait, oldest first, and all damaged bytes.

    Entries that a running proxy drains at the same time may be missing.
    """
    for base in bases(directory):
        segment = BufferSegment(directory, base)
        try:
            for found in segment.scan():
                yield _shown(segment, found)
        except FileNotFoundError:
            continue
        finally:
            segment.close()


def buried(directory: Path) -> Iterator[Waiting]:
    """The dead-letter list."""
    for number, each in enumerate(dead.read(directory)):
        yield Waiting(number, each.entry, each.reason)


def is_store(directory: Path) -> bool:
    """Whether a buffer or a repair journal is or was there: it leaves its lock; a rescued copy has a segment or the dead letters."""
    return (directory / "lock").is_file() or bool(bases(directory)) or (directory / "dead.buf").is_file()


def is_held(directory: Path) -> bool:
    """Whether a process holds the directory now."""
    try:
        with open(directory / "lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _shown(segment: BufferSegment, found: Block | Gap) -> Waiting | BufferDamage:
    if isinstance(found, Gap):
        return BufferDamage(segment.path.name, found.offset, found.size, found.torn)
    try:
        return Waiting(segment.base + found.offset, decode(found.payload))
    except EntryError:
        return BufferDamage(segment.path.name, found.offset, found.size, False)
