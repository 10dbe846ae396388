"""A data directory opened by a tool: its lock, its segments, and the identity of its log."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine.env.base import Env, File
from engine.errors import CorruptionError, LogError
from engine.log.format import SEGMENT_HEADER_SIZE, SegmentHeader, parse_segment_header, segment_name
from engine.log.offline.readonly import ReadOnlyEnv, ReadOnlyStore
from engine.log.segment.native import BatchReader
from engine.log.segment.side_files import SUFFIX, segment_bases
from engine.log.view import CHECKPOINT_KEY, Checkpoint, View


class NoLogError(LogError):
    """The directory has no log."""


@dataclass
class SegmentFile:
    """One segment on the disk. Unless it is `sound`, its `header` is made from the name and the neighbours."""

    path: str
    base: int
    header: SegmentHeader
    sound: bool

    @property
    def index_path(self) -> str:
        """Path of its index file."""
        return self.path.removesuffix(SUFFIX) + ".idx"


@dataclass
class Directory:
    """An opened directory. The tool holds its lock."""

    path: str
    env: Env
    log_id: bytes
    segments: list[SegmentFile]
    view: View | None
    """Read-only; None when there is none or it cannot be opened, which `view_fault` explains."""
    view_fault: str
    checkpoint: Checkpoint | None
    names: dict[int, str] = field(default_factory=dict)
    """Topics that were found in the log so far, by id."""

    @property
    def state_path(self) -> str:
        """Folder of RocksDB."""
        return f"{self.path}/state"

    def batches(self) -> BatchReader:
        """A reader for this log's batches; one per thread."""
        return BatchReader(self.log_id)

    def open(self, segment: SegmentFile) -> File:
        """Open the segment's file."""
        return self.env.open(segment.path)

    def topic_name(self, topic_id: int) -> str | None:
        """Name of the topic by the view, else by the records seen so far."""
        if topic_id not in self.names and self.view is not None:
            try:
                topic = self.view.topic_by_id(topic_id)
            except (CorruptionError, OSError):
                topic = None
            if topic is not None:
                self.names[topic_id] = topic.name
        return self.names.get(topic_id)


def find(given: Path) -> str:
    """DIR or DIR/engine, whichever has a log. Raises NoLogError."""
    for path in (given, given / "engine"):
        if (path / "log").is_dir():
            return str(path)
    raise NoLogError(f"{given}: no log in it, nor in {given / 'engine'}: give the data directory of an engine")


@contextmanager
def opened(given: Path, env: Env | None = None) -> Iterator[Directory]:
    """Open the directory for reading and hold its lock meanwhile.

    Raises NoLogError, LockedError, VersionError, and CorruptionError when the log cannot be identified.
    """
    path, env = find(given), env or ReadOnlyEnv()
    unlock = env.lock(f"{path}/lock")
    view = None
    try:
        view, fault = _open_view(f"{path}/state")
        checkpoint, fault = _checkpoint(view, fault)
        log_id, segments = _segments(env, f"{path}/log", checkpoint)
        yield Directory(path, env, log_id, segments, view, fault, checkpoint)
    finally:
        if view is not None:
            view.store.close()
        unlock()


def _open_view(state: str) -> tuple[View | None, str]:
    if not Path(state, "CURRENT").exists():
        return None, "missing" if not Path(state).exists() else "it has no file CURRENT"
    try:
        return View(ReadOnlyStore(state)), ""
    except (CorruptionError, OSError) as error:
        return None, str(error)


def _checkpoint(view: View | None, fault: str) -> tuple[Checkpoint | None, str]:
    try:
        value = view.store.get(CHECKPOINT_KEY) if view is not None else None
    except (CorruptionError, OSError) as error:
        return None, str(error)
    return (Checkpoint.parse(value) if value else None), fault


def _segments(env: Env, directory: str, checkpoint: Checkpoint | None) -> tuple[bytes, list[SegmentFile]]:
    bases = segment_bases(env.list(directory))
    headers = {base: _header(env, f"{directory}/{segment_name(base)}") for base in bases}
    known = Counter(header.log_id for header in headers.values() if header is not None)
    if not known and checkpoint is None and bases:
        raise CorruptionError(
            directory,
            min(headers),
            SEGMENT_HEADER_SIZE,
            "no segment has a sound header, and no checkpoint says which log it is",
        )
    log_id = checkpoint.log_id if checkpoint is not None else known.most_common(1)[0][0] if known else bytes(16)
    found = []
    for base, above in zip(bases, [*bases[1:], None], strict=True):
        path, header = f"{directory}/{base:020d}{SUFFIX}", headers[base]
        sound = header is not None and header.base == base and header.log_id == log_id
        if not sound or header is None:
            size = above - base if above is not None else Path(path).stat().st_size
            header = SegmentHeader(log_id, base, 1, size, 0)
        found.append(SegmentFile(path, base, header, sound))
    return log_id, found


def _header(env: Env, path: str) -> SegmentHeader | None:
    file = env.open(path)
    try:
        return parse_segment_header(file.read_at(SEGMENT_HEADER_SIZE, 0), path)
    except OSError:
        return None
    finally:
        file.close()
