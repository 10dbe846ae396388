"""Errors of `penstock up`.

UpError ← AlreadyRunning, PortTaken, ChildFailed. Each is one sentence for a person.
"""


class UpError(Exception):
    exit_code = 1


class AlreadyRunning(UpError):
    """Another `up` uses the data directory; nothing was changed."""

    exit_code = 4


class PortTaken(UpError):
    """A port that was given by number is in use."""


class ChildFailed(UpError):
    """A process ended repeatedly before it served."""
