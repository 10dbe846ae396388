"""Errors of the engine.

EngineError
├── EngineConfigError            all faults of the configuration at once
├── GroupUnreadError       the definition of a group is not known
├── QuotaError             an application has created as many groups or topics as it may
└── LogError               the commit log
    ├── LockedError        another engine holds the directory
    ├── VersionError       the directory was written by a newer Penstock
    ├── CorruptionError    bytes do not verify; names file, position and bytes lost
    │   └── StoreDamagedError   the view in the folder `state`; the log rebuilds it
    ├── BehindCheckpointError   the log ends before its own checkpoint: an older copy was put back
    ├── DiskFullError      nothing was written; the same request works when there is room
    ├── NotStoredError     an error met an append before its write; nothing of it is stored
    ├── PartlyWrittenError a part was written before the disk was full: the outcome is unknown
    ├── TimersReturnedError   delayed messages that the start could not read can be read
    ├── UnknownTopicError  no such topic, or the topic has no such queue
    ├── OffsetOutOfRangeError   below the first or above the end offset
    ├── UnreadableError    the disk cannot read it now; the same request may work later
    ├── PositionGoneError  the segment with a position is deleted, or lost
    ├── NotMasterError     another broker's log is followed
    ├── SourceMovedError   a queue's copied records come from another source
    ├── EpochOrderError    an epoch does not follow the log's last one
    └── ClosedError        the log is closed

`code` is the contract's code for a request that met the error. A failed fsync is no exception: the process ends (see
`Env.die`), because a second fsync could succeed without the lost bytes.
"""


class EngineError(Exception):
    """Base of all errors of the engine."""

    code = 203


class EngineConfigError(EngineError):
    """The configuration cannot be used. `faults` holds every violated rule, each with its option and range."""

    code = 100

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class GroupUnreadError(EngineError):
    """The group is not served while its definition is not known. Retriable."""

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(f'group "{group}": {reason}')


class QuotaError(EngineError):
    """The application has created as many groups or topics of families as it may. Nothing was created."""

    code = 109


class LogError(EngineError):
    """Base of all errors of the commit log."""


class LockedError(LogError):
    """Another process holds the data directory."""


class VersionError(LogError):
    """The directory has a format that this version does not know. Nothing was changed."""


class CorruptionError(LogError):
    """Stored bytes do not verify, and were not served.

    Args:
        file: path of the damaged file.
        position: log position of the first bad byte; in an index file, its byte address.
        bytes_lost: number of bytes that cannot be used.
        next_offset: where a reader of that queue may continue. None: nothing readable follows, or the damage is in no
            queue.
    """

    def __init__(self, file: str, position: int, bytes_lost: int, reason: str, next_offset: int | None = None) -> None:
        super().__init__(f"file={file} position={position}: {bytes_lost} bytes lost: {reason}")
        self.file = file
        self.position = position
        self.bytes_lost = bytes_lost
        self.next_offset = next_offset


class StoreDamagedError(CorruptionError):
    """The view of topics, progress and segments cannot be read.

    The log builds a new one once the folder is moved away.
    """


class BehindCheckpointError(LogError):
    """The log ends before its checkpoint, so an older copy of a file was put back. Nothing was changed.

    Put the newer file back in its place. Removing the folder `state` instead accepts the loss.
    """


class DiskFullError(LogError):
    """The disk has no room. Nothing of the request was written; the same request works when there is room."""

    code = 205


class CheckpointError(LogError):
    """The view was not brought up to date on the disk. Nothing is lost: a start replays the log."""


class NotStoredError(LogError):
    """An error met an append before its write, and nothing of it is stored. The same request may be repeated."""


class PartlyWrittenError(LogError):
    """The disk was full between two writes of one request, so some of its batches are stored.

    Retry with the same ids.
    """

    code = 300


class TimersReturnedError(LogError):
    """Delayed messages that the start could not read can be read again: the next start takes them in."""


class UnknownTopicError(LogError):
    """No such topic, or the topic has no such queue."""

    code = 102


class OffsetOutOfRangeError(LogError):
    """The offset is below the queue's first readable offset or above its end."""

    code = 107

    def __init__(self, offset: int, first_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside {first_offset}..{end_offset}")
        self.first_offset = first_offset
        self.end_offset = end_offset


class UnreadableError(LogError):
    """The disk refuses a read. Nothing is known to be lost; the same request may work later."""


class PositionGoneError(LogError):
    """The position is in a segment that was deleted, or whose file is lost."""


class NotMasterError(LogError):
    """This broker is not the master of its group, so nothing of its own is appended."""

    code = 211


class SourceMovedError(LogError):
    """The queue's source is another one than the caller believes. Nothing was changed; ask for its state."""

    code = 214


class EpochOrderError(LogError):
    """An epoch does not follow the log's last one."""


class ClosedError(LogError):
    """The log is closed, so nothing can be read or appended."""

    code = 400
