"""What can go wrong with the configuration.

PenstockError
└── ConfigError
    ├── InvalidEntry         the caller's input: a name or a value that no store takes
    │   └── InvalidDefinition    all faults of a definition at once, each with its field and range
    ├── EntryNotFound
    ├── VersionConflict      somebody else was quicker, or the entry exists already: read it again
    ├── BucketFull           the store's limit on one bucket: fewer or smaller definitions, or a family
    ├── StoreDamaged         a file or node of the store does not verify; nothing was changed
    └── StoreUnavailable     retriable
        └── UncertainWrite   the connection broke in mid-write: it may have happened, read before retrying
"""

from collections.abc import Sequence

from common.errors import PenstockError


class ConfigError(PenstockError):
    pass


class InvalidEntry(ConfigError):
    code = 100


class InvalidDefinition(InvalidEntry):
    """Carries every fault, so that a person corrects all of them in one go."""

    def __init__(self, subject: str, faults: Sequence[str]):
        super().__init__(f"{subject}: " + "; ".join(faults))
        self.subject = subject
        self.faults = tuple(faults)


class EntryNotFound(ConfigError):
    code = 102


class VersionConflict(ConfigError):
    """Nothing of the refused change was written."""

    code = 100

    def __init__(self, kind: str, name: str, expected: int, found: int):
        if expected == 0:
            text = f"{kind}={name}: exists already (version {found})"
        elif found == 0:
            text = f"{kind}={name}: expected version {expected}, but it does not exist"
        else:
            text = f"{kind}={name}: expected version {expected}, found {found}: somebody changed it meanwhile"
        super().__init__(text)
        self.kind, self.name, self.expected, self.found = kind, name, expected, found


class BucketFull(ConfigError):
    pass


class StoreDamaged(ConfigError):
    pass


class StoreUnavailable(ConfigError):
    retriable = True


class UncertainWrite(StoreUnavailable):
    pass
