"""Why `penstock up` does not serve.

UpError ← AlreadyRunning, PortTaken, ChildFailed. Each is one sentence for a person.
"""


class UpError(Exception):
    exit_code = 1


class AlreadyRunning(UpError):
    """Another `up` holds the data directory; nothing was touched."""

    exit_code = 4


class PortTaken(UpError):
    """A port that was asked for by number is in use."""


class ChildFailed(UpError):
    """A process died again and again before it ever served."""
