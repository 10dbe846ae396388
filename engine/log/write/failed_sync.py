"""Failed syncs: the process ends, and the next one writes again what the kernel may have dropped.

After a failed sync the kernel keeps the bytes in the page cache, but calls them written: readers see them, and a later
sync reports success without them. The next process would read them, call them durable and acknowledge them, and a
power cut would take them. So the process that ends leaves a mark beside the segments. Recovery that finds it writes the
batches of the segments that it scans once more, before their sync.

The mark is a spare file under another name: a disk or a quota without room takes a rename, not a new file.
"""

from contextlib import suppress

from engine.env.base import Env
from engine.log.format import SEGMENT_HEADER_SIZE
from engine.log.segment.segment import Segment

MARK = "sync-failed"
SPARE = "sync-failed.spare"
STEP_BYTES = 1 << 20


def die_of_sync(env: Env, path: str, reason: object) -> None:
    """Leave the mark beside the file and end the process."""
    directory = path.rpartition("/")[0]
    with suppress(OSError):
        if env.exists(_spare(directory)):
            env.rename(_spare(directory), _mark(directory))
    if not is_marked(env, directory):
        with suppress(OSError):  # there is no more that this process can do
            env.open(_mark(directory), create=True).close()
    env.die(f"{path}: fdatasync failed: {reason}")


def is_marked(env: Env, directory: str) -> bool:
    """Whether an earlier process has ended by a failed sync."""
    return env.exists(_mark(directory))


def unmark(env: Env, directory: str) -> None:
    """Remove the mark: everything is written again and synced."""
    env.rename(_mark(directory), _spare(directory))
    env.sync_directory(directory)


def keep_spare(env: Env, directory: str) -> None:
    """Make the spare file at a start, if there is none. Without room the mark is a new file, if there is room then."""
    if not env.exists(_spare(directory)):
        with suppress(OSError):
            env.open(_spare(directory), create=True).close()


def write_again(env: Env, segment: Segment) -> None:
    """Write the segment's bytes up to its end once more, so that the next sync covers them. Blocks for their size."""
    at = 0
    end = max(segment.end_at, SEGMENT_HEADER_SIZE)
    try:
        while at < end:
            data = segment.file.read_at(min(STEP_BYTES, end - at), at)
            if not data:
                return
            at += segment.file.write_at(data, at)
    except OSError as error:
        env.die(f"{segment.path}: cannot be written again after a failed sync: {error}")


def _mark(directory: str) -> str:
    return f"{directory}/{MARK}"


def _spare(directory: str) -> str:
    return f"{directory}/{SPARE}"
