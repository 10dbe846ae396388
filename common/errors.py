"""Errors that several parts share.

PenstockError
├── AuthenticationError      code 104   the credential was rejected
│   └── CredentialUnchecked  code 203   it cannot be checked now: use another proxy, or try again later
└── config.errors.ConfigError ...       see common/config/errors.py
"""


class PenstockError(Exception):
    """Base of all errors that come from input, network, disk or state, not from our bugs.

    The text is one sentence for a person and names the thing first.
    """

    code = 203  # result code of the contract for clients; UNAVAILABLE unless a subclass overrides it


class AuthenticationError(PenstockError):
    """The credential was rejected. The sentence may go to the client as it is."""

    code = 104


class CredentialUnchecked(AuthenticationError):
    """The configuration is too old to say whether the credential is still valid."""

    code = 203
