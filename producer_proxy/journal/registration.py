"""The journal's entry in the configuration: it tells migration plans that the journal exists, and what it holds.

Kind `journal`, by an id that the journal keeps for ever. The entry is made before the first message is journalled, and
outlives its process: a plan must not take the journal of a killed proxy for an empty one.
"""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gevent.lock import BoundedSemaphore

from common.config.errors import VersionConflict
from common.config.store import ConfigStore

KIND = "journal"
COMPARED = "compared"
"""Field that operators write, with the ranges that they have compared; a `tell` of something else removes it."""
IDENTITY_NAME = "identity"
RACES_MAX = 5


class JournalRegistration:
    """
    Args:
        process: name under which the proxy reports.
        directory: of the journal.
    """

    def __init__(self, store: ConfigStore, process: str, directory: Path) -> None:
        self._store, self._process, self._directory = store, process, directory
        self._told: dict[str, Any] | None = None
        self._is_made = False
        self._writing = BoundedSemaphore()

    @property
    def may_exist(self) -> bool:
        """Whether this process or an earlier one has made the entry."""
        return (self._directory / IDENTITY_NAME).exists()

    def make(self) -> None:
        """Make the entry unless this process has done so; what an earlier one has told stays. Blocks.

        Raises:
            ConfigError, OSError
        """
        if not self._is_made:
            self._write(lambda before: before | self._own())

    def compared(self) -> set[tuple[str, int, int, int]]:
        """Ranges of this journal that an operator has compared since the last `tell`: topic, queue and both times.

        Blocks. Raises ConfigError, OSError.
        """
        found = self._store.get(KIND, self._identity()) if self.may_exist else None
        return {(topic, *rest) for topic, *rest in (found.value.get(COMPARED, ()) if found is not None else ())}

    def tell(self, contents: dict[str, Any]) -> None:
        """Write what the journal holds, if it has changed. Blocks. Raises ConfigError, OSError."""
        if contents != self._told:
            self._write(lambda before: self._own() | contents)
            self._told = contents

    def _own(self) -> dict[str, Any]:
        return {"process": self._process, "directory": str(self._directory.resolve())}

    def _write(self, new: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        with self._writing:
            name = self._identity()
            for race in range(RACES_MAX):
                found = self._store.get(KIND, name)
                before = {} if found is None else found.value
                if found is not None and before == new(before):
                    break
                try:
                    self._store.put(KIND, name, new(before), 0 if found is None else found.version)
                    break
                except VersionConflict:
                    if race == RACES_MAX - 1:
                        raise
            self._is_made = True

    def end(self) -> None:
        """Delete the entry: the journal holds nothing. Blocks. Raises ConfigError, OSError."""
        if self.may_exist and (found := self._store.get(KIND, self._identity())) is not None:
            self._store.delete(KIND, self._identity(), found.version)
        self._told, self._is_made = None, False

    def _identity(self) -> str:
        path = self._directory / IDENTITY_NAME
        if not path.exists():
            draft = path.with_suffix(".new")
            draft.write_text(uuid.uuid4().hex)
            draft.replace(path)
        return path.read_text().strip()
