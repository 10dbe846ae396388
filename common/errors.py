"""The errors that several parts share. Each says by class attributes what its catcher should do.

PenstockError
├── AuthenticationError      code 104   the credential was refused
├── PermissionDeniedError    code 105   authenticated, but not allowed on this topic or group
└── config.errors.ConfigError ...       see common/config/errors.py
"""


class PenstockError(Exception):
    """Base of all errors that are somebody's fault or the world's, not our bugs.

    The text is one sentence for a person and names the thing first.
    """

    code = 203  # contract code that a client is answered with; UNAVAILABLE unless a subclass knows better
    retriable = False
    closes_connection = False


class AuthenticationError(PenstockError):
    """The credential was refused. The sentence may go to the client as it is."""

    code = 104


class PermissionDeniedError(PenstockError):
    """The application may not do this on that topic or group. The sentence may go to the client as it is."""

    code = 105
