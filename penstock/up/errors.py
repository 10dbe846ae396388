"""Errors of `penstock up`.

UpError ← AlreadyRunning, PortTaken, OtherGroups, WrongPort, ChildFailed. Each is one sentence for a person.
"""


class UpError(Exception):
    exit_code = 1


class AlreadyRunning(UpError):
    """Another `up` uses the data directory; nothing was changed."""

    exit_code = 4


class PortTaken(UpError):
    """A port that was given by number is in use."""

    exit_code = 4


class OtherGroups(UpError):
    """The data directory or the configuration has other broker groups or replicas than were asked for."""

    exit_code = 4


class WrongPort(UpError):
    """The value of `--ports` is not a port number."""

    exit_code = 2


class ChildFailed(UpError):
    """A process ended repeatedly before it served."""
