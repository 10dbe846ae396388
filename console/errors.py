"""Errors of the console.

PenstockError
└── ConsoleError
    ├── InvalidForm          faults of a form by field; nothing was changed
    ├── RequestConflict      another person or tab was faster; the sentence says what happened
    ├── DatabaseUnavailable  the console's own database cannot be used now
    ├── ProviderUnavailable  the provider of OpenID Connect does not answer
    └── SignInRefused        its answer, or the account, is not accepted; the sentence says why
"""

from collections.abc import Mapping

from common.errors import PenstockError


class ConsoleError(PenstockError):
    pass


class InvalidForm(ConsoleError):
    """Carries one sentence per field; "" is the form as a whole."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{field}: {fault}" if field else fault for field, fault in faults.items()))
        self.faults = dict(faults)


class RequestConflict(ConsoleError):
    pass


class DatabaseUnavailable(ConsoleError):
    pass


class ProviderUnavailable(ConsoleError):
    pass


class SignInRefused(ConsoleError):
    pass
