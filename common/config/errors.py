"""Errors of the configuration.

PenstockError
└── ConfigError
    ├── InvalidEntry         a name or a value from the caller that no store accepts
    │   └── InvalidDefinition    all faults of a definition at once, each with its field, value and rule
    ├── EntryNotFound
    ├── VersionConflict      another writer changed or created the entry: read it again
    ├── BucketFull           the store's limit on one bucket: use fewer or smaller definitions, or a family
    ├── StoreDamaged         a file or node of the store does not verify; nothing was changed
    └── StoreUnavailable     try again later
        ├── AccessDenied     this process may not do that in the store; nothing was changed
        └── UncertainWrite   the connection broke during a write that may have happened: read before trying again
"""

from collections.abc import Sequence

from common.errors import PenstockError
from common.quoting import thing


class ConfigError(PenstockError):
    pass


class InvalidEntry(ConfigError):
    code = 100


class InvalidDefinition(InvalidEntry):
    """Carries every fault, so that a person can correct all of them at once."""

    def __init__(self, subject: str, faults: Sequence[str]):
        super().__init__(f"{subject}: " + "; ".join(faults))
        self.subject = subject
        self.faults = tuple(faults)


class EntryNotFound(ConfigError):
    code = 102


class VersionConflict(ConfigError):
    """Nothing of the rejected change was written."""

    code = 100

    def __init__(self, kind: str, name: str, expected: int, found: int):
        if expected == 0:
            problem = f"exists already (version {found})"
        elif found == 0:
            problem = f"expected version {expected}, but it does not exist"
        else:
            problem = f"expected version {expected}, found {found}: it was changed meanwhile, read it again"
        super().__init__(f"{thing(kind, name)}: {problem}")
        self.kind, self.name, self.expected, self.found = kind, name, expected, found


class BucketFull(ConfigError):
    pass


class StoreDamaged(ConfigError):
    pass


class StoreUnavailable(ConfigError):
    pass


class AccessDenied(StoreUnavailable):
    pass


class UncertainWrite(StoreUnavailable):
    pass
