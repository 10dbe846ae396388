"""Backups of an engine's log, made beside the running engine, and their way back.

A backup is the segments, copied in the order of their bases: what a power cut would have left of the log at the moment
of the copy. The view (`state/`) and look-up files are made again by the engine that opens it. A manifest, written last,
names each file with size and SHA-256. A sealed segment that the manifest has is not copied again.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from common.config.files import replace, sync_directory
from engine.errors import LogError
from engine.log.format import NOT_BEGUN, SEGMENT_HEADER_SIZE, SegmentHeader, parse_segment_header

MANIFEST = "backup.json"
VERSION = 1
CHUNK_BYTES = 1 << 20
ZEROS = bytes(CHUNK_BYTES)
ROUNDS_MAX = 100
"""Rounds in which segments were begun or deleted while others were copied."""
QUIET_NS = 50_000_000
SEALED_SIDES = (".idx", ".dup")

Tell = Callable[[str, int], None]
"""Called after each file: its name and the bytes that were copied, 0 when it was there."""


class BackupError(LogError):
    """A backup cannot be made or used."""


class BackupFile(NamedTuple):
    """A file of the log as the manifest has it."""

    name: str
    size: int
    sha256: str
    source_mtime_ns: int

    def is_of(self, source: Path) -> bool:
        """Whether the source is still what was copied."""
        found = source.stat()
        return (found.st_size, found.st_mtime_ns) == (self.size, self.source_mtime_ns)


class Manifest(NamedTuple):
    """What a backup holds."""

    log_id: str
    made_at_ms: int
    files: dict[str, BackupFile]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files.values())

    def encode(self) -> bytes:
        """As JSON."""
        head = {"version": VERSION, "log_id": self.log_id, "made_at_ms": self.made_at_ms}
        return (
            json.dumps(head | {"files": [each._asdict() for each in self.files.values()]}, indent=1) + "\n"
        ).encode()


def read_manifest(target: Path) -> Manifest | None:
    """The manifest of a backup; None: there is none. Raises BackupError, OSError."""
    path = target / MANIFEST
    try:
        value = json.loads(path.read_bytes())
        if value["version"] != VERSION:
            raise BackupError(f"{path}: version {value['version']}; this program reads {VERSION}")
        files = [BackupFile(**each) for each in value["files"]]
        for each in files:
            if Path(each.name).name != each.name or each.size < 0:
                raise ValueError(f"file {each.name!r}")
        return Manifest(value["log_id"], value["made_at_ms"], {each.name: each for each in files})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(f"{path}: is no manifest of a backup: {error}") from error


def back_up(directory: Path, target: Path, tell: Tell) -> Manifest:
    """Copy the log of a data directory, whose engine may run, into the backup at `target`, and sync it.

    What the log no longer has leaves the backup, too. Killed at any step, the old manifest is in force or the new one,
    and each file that it names is there, but for those that retention had deleted from the log.

    Raises:
        BackupError: the directory has no log, another one than the backup, or an older state of it.
        OSError: a disk fails or is full.
    """
    source, folder = directory / "log", target / "log"
    before = read_manifest(target)
    log_id = _check_source(source, before, target)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = _copied(source, folder, before.files if before else {}, tell)
    made = Manifest(log_id, time.time_ns() // 1_000_000, files)
    replace(target / MANIFEST, made.encode())
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    return made


def check(target: Path, tell: Tell) -> Manifest:
    """Read every byte of a backup. Raises BackupError with the first file that is not as the manifest says; OSError."""
    manifest = _needed(target)
    for each in manifest.files.values():
        _verify(target / "log" / each.name, each)
        tell(each.name, each.size)
    return manifest


def restore(target: Path, directory: Path, tell: Tell) -> Manifest:
    """Make a data directory from a backup. An engine that starts there makes the view from the log.

    Raises:
        BackupError: the backup is damaged, or the directory is not empty.
        OSError: a disk fails or is full.
    """
    manifest = _needed(target)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if any(directory.iterdir()):
        raise BackupError(f"{directory}: is not empty: restore into a new directory")
    unfinished = directory / "restore-unfinished"
    unfinished.mkdir(mode=0o700)
    for each in manifest.files.values():
        size, digest = _copy(target / "log" / each.name, unfinished / each.name)
        if (size, digest) != (each.size, each.sha256):
            raise BackupError(f"{target / 'log' / each.name}: is damaged: it is not what the manifest says")
        tell(each.name, size)
    sync_directory(unfinished)
    unfinished.rename(directory / "log")
    sync_directory(directory)
    return manifest


def _needed(target: Path) -> Manifest:
    manifest = read_manifest(target)
    if manifest is None:
        raise BackupError(f"{target}: has no {MANIFEST}: it is no backup")
    return manifest


def _check_source(source: Path, before: Manifest | None, target: Path) -> str:
    """The log's id. Raises BackupError."""
    names = _segments(source) if source.is_dir() else []
    if not names:
        raise BackupError(f"{source.parent}: has no log")
    header = _header(source / names[-1])
    log_id = header.log_id.hex()
    if before is not None and before.log_id != log_id:
        raise BackupError(f"{target}: is a backup of log {before.log_id}, and {source.parent} has log {log_id}")
    last = max((name for name in before.files if name.endswith(".seg")), default="") if before is not None else ""
    if last > names[-1]:
        raise BackupError(f"{source.parent}: its log ends before the backup, whose last segment is {last}")
    return log_id


def _header(path: Path) -> SegmentHeader:
    with path.open("rb") as file:
        header = parse_segment_header(file.read(SEGMENT_HEADER_SIZE), str(path))
    if header is None:
        raise BackupError(f"{path}: its header does not verify: see `penstock log verify`")
    return header


def _segments(source: Path) -> list[str]:
    return sorted(path.name for path in source.glob("*.seg"))


def _copied(source: Path, folder: Path, known: dict[str, BackupFile], tell: Tell) -> dict[str, BackupFile]:
    """Copy until no segment has got bytes after its copy while a later one was begun: that would leave a hole."""
    known, told = dict(known), set[str]()
    for _ in range(ROUNDS_MAX):
        sealed, others = _listing(source)
        files: dict[str, BackupFile] = {}
        copied_at_ns: dict[str, int] = {}
        is_whole = True
        for name in (*sealed, *others):
            try:
                copied_at_ns[name] = time.time_ns()
                found = _kept(source / name, folder / name, known.get(name)) if name in sealed else None
                written = 0 if found is not None else (source / name).stat().st_size
                files[name] = known[name] = found or _copy_of(source / name, folder / name, name in others)
            except FileNotFoundError:  # retention has deleted it
                is_whole = False
                continue
            if written or name not in told:
                tell(name, written)
                told.add(name)
        if (
            is_whole
            and (sealed, others) == _listing(source)
            and _has_no_hole(source, folder, files, others, copied_at_ns)
        ):
            sync_directory(folder)
            return {name: files[name] for name in sorted(files)}
        time.sleep(QUIET_NS / 1e9)
    raise BackupError(f"{source}: segments fill faster than they can be copied")


def _listing(source: Path) -> tuple[list[str], list[str]]:
    """Files of sealed segments and those beside them, and segments that are being written, sealed or kept ready."""
    there = {path.name for path in source.iterdir()}
    sealed, others = list[str](), list[str]()
    for name in _segments(source):
        stem = name.removesuffix(".seg")
        if f"{stem}.idx" in there:
            sealed += [name, *(stem + suffix for suffix in SEALED_SIDES if stem + suffix in there)]
        else:
            others.append(name)
    return sealed, others


def _has_no_hole(
    source: Path, folder: Path, files: dict[str, BackupFile], others: list[str], copied_at_ns: dict[str, int]
) -> bool:
    """Whether each segment that is not sealed, but for the last one with batches, was quiet before and since its copy.

    A file's time has the step of the kernel's clock, so a write soon after another one may not change it.
    """
    begun = [name for name in others if _header(source / name).previous_end != NOT_BEGUN]
    if any(_header(folder / name).previous_end == NOT_BEGUN for name in begun):
        return False
    try:
        return all(
            files[name].is_of(source / name) and files[name].source_mtime_ns < copied_at_ns[name] - QUIET_NS
            for name in begun[:-1]
        )
    except FileNotFoundError:
        return False


def _kept(source: Path, copy: Path, known: BackupFile | None) -> BackupFile | None:
    """The copy that is there, if it still is one."""
    if known is None or not known.is_of(source) or not copy.is_file() or copy.stat().st_size != known.size:
        return None
    return known


def _copy_of(source: Path, copy: Path, is_written: bool) -> BackupFile:
    mtime_ns = source.stat().st_mtime_ns  # before the bytes: what is written meanwhile makes it another file
    new = copy.with_name(copy.name + ".new")
    size, digest = _copy(source, new, _written(source) if is_written else None)
    new.rename(copy)
    return BackupFile(copy.name, size, digest, mtime_ns)


def _written(path: Path) -> int:
    """The end of the bytes that are not zeros: appends go on behind. All before it was written when it was read."""
    end = at = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            if chunk != ZEROS and (kept := chunk.rstrip(b"\0")):
                end = at + len(kept)
            at += len(chunk)
    return end


def _copy(source: Path, target: Path, end: int | None = None) -> tuple[int, str]:
    """Copy and sync a file, its zeros as holes. Returns size and SHA-256.

    Args:
        end: zeros behind it: an append that is read later than its neighbour would leave a hole before it.
    """
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as read, target.open("wb") as write:
        os.fchmod(write.fileno(), 0o600)
        while chunk := read.read(CHUNK_BYTES):
            if end is not None and size + len(chunk) > end:
                chunk = chunk[: max(0, end - size)].ljust(len(chunk), b"\0")
            digest.update(chunk)
            size += len(chunk)
            if chunk == ZEROS:
                write.seek(len(chunk), os.SEEK_CUR)
            else:
                write.write(chunk)
        write.truncate(size)
        write.flush()
        os.fsync(write.fileno())
    return size, digest.hexdigest()


def _verify(path: Path, known: BackupFile) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except FileNotFoundError as error:
        raise BackupError(f"{path}: is missing") from error
    if (size, digest.hexdigest()) != (known.size, known.sha256):
        raise BackupError(f"{path}: is damaged: it is not what the manifest says")
