"""Errors of administrative verbs.

ConfigError
├── StateConflict              the verb is valid, but the present state forbids it. The sentence names the remedy
└── VersionConflict
    └── AlreadyExist     some of the names are taken; nothing was created
"""

from collections.abc import Sequence

from common.config.errors import ConfigError, VersionConflict
from common.quoting import quoted

SHOWN_MAX = 5


class StateConflict(ConfigError):
    code = 100


class AlreadyExist(VersionConflict):
    """Carries all taken names; its sentence shows the first few."""

    def __init__(self, kind: str, names: Sequence[str], count: int):
        text = ", ".join(map(quoted, names[:SHOWN_MAX])) + (", …" if len(names) > SHOWN_MAX else "")
        some = f"{len(names):,} of {count:,} exist" if count > 1 else "exists"
        ConfigError.__init__(self, f"{kind} {text}: {some} already: nothing was created")
        self.kind, self.names = kind, tuple(names)
