"""What can go wrong in the engine.

EngineError
├── ConfigError            every fault of the configuration at once
└── LogError               the commit log
    ├── LockedError        another engine holds the directory
    ├── VersionError       the directory was written by a newer Penstock
    ├── CorruptionError    bytes do not verify; names file, position and bytes lost
    │   └── StoreDamagedError   the view in the folder state; removing it builds it again
    ├── BehindCheckpointError   the log ends before what its own checkpoint saw: an older copy was put back
    ├── DiskFullError      nothing was written; works again when there is room
    ├── PartlyWrittenError the same after a part was written: the outcome is unknown
    ├── UnknownTopicError  no such topic, or a queue that it does not have
    ├── OffsetOutOfRangeError   below the first or above the end offset
    └── ClosedError        the log was closed

`code` is the contract's code for a request that met the error, `retriable` says whether the same request may succeed
later. A failed fsync is no exception: the process ends (see env.Env.die), because a second fsync would lie.
"""


class EngineError(Exception):
    """Base of all errors of the engine."""

    retriable = False
    closes_connection = False
    code = 203


class ConfigError(EngineError):
    """The configuration cannot be used. `faults` holds every violated rule, each with its option and range."""

    code = 100

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class LogError(EngineError):
    """Base of all errors of the commit log."""


class LockedError(LogError):
    """Another process holds the data directory."""


class VersionError(LogError):
    """The directory holds a format that this version does not know. Nothing was changed."""


class CorruptionError(LogError):
    """Stored bytes do not verify, and were not served.

    Args:
        file: path of the damaged file.
        position: log position of the first bad byte (in an index file: its byte address).
        bytes_lost: how many bytes cannot be used.
        next_offset: where a reader of that queue may go on; None when nothing readable follows, or the damage is in
        no queue.
    """

    def __init__(self, file: str, position: int, bytes_lost: int, reason: str, next_offset: int | None = None) -> None:
        super().__init__(f"file={file} position={position}: {bytes_lost} bytes lost: {reason}")
        self.file = file
        self.position = position
        self.bytes_lost = bytes_lost
        self.next_offset = next_offset


class StoreDamagedError(CorruptionError):
    """The view of topics, progress and segments cannot be read. The log builds a new one when the folder is moved away."""


class BehindCheckpointError(LogError):
    """The log ends before its checkpoint, so an older copy of a file was put back. Nothing was changed.

    The newer file belongs back in its place. Removing the folder `state` instead accepts the loss.
    """


class DiskFullError(LogError):
    """The disk has no room. Nothing of the request was written; the same request works when there is room."""

    retriable = True


class PartlyWrittenError(LogError):
    """The disk ran full between two writes of one request, so some of its batches are stored.

    Retry with the same ids.
    """

    retriable = True
    code = 300


class UnknownTopicError(LogError):
    """No such topic, or the topic has no such queue."""

    code = 102


class OffsetOutOfRangeError(LogError):
    """The offset lies below the queue's first readable offset or above its end."""

    code = 107

    def __init__(self, offset: int, first_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside {first_offset}..{end_offset}")
        self.first_offset = first_offset
        self.end_offset = end_offset


class ClosedError(LogError):
    """The log was closed, so nothing can be read or appended through it any more."""

    retriable = True
    code = 400
