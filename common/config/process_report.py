"""The report of one process: the version of the configuration that it works by, and what it adds to that."""

import threading
from collections.abc import Callable
from contextlib import suppress

from common.config.errors import StoreUnavailable
from common.config.store import ConfigStore, ConfigVersion

OPS_PORT = "ops_port"


class ProcessReport:
    """
    Args:
        process: name under which it is reported; None: it is not.
        version: the version that is in force.
    """

    def __init__(self, store: ConfigStore, process: str | None, version: Callable[[], ConfigVersion]) -> None:
        self._store, self._process, self._version = store, process, version
        self._more: list[Callable[[], ConfigVersion]] = []
        self._writing = threading.Lock()

    def add(self, more: Callable[[], ConfigVersion]) -> None:
        """Add these numbers to every report; their names are no kinds."""
        self._more.append(more)

    @property
    def process(self) -> str:
        """The name of the process in reports; empty: it is not reported."""
        return self._process or ""

    def write(self) -> None:
        """Raises StoreUnavailable."""
        if self._process:
            with self._writing:  # an older version must not come after a newer one
                numbers = self._version()
                for more in self._more:
                    numbers = numbers | more()
                self._store.report_applied(self._process, numbers)

    def repeat(self) -> None:
        """Write it again after a change of the added numbers. Without the store, its return brings the next report."""
        with suppress(StoreUnavailable):
            self.write()

    def tell_pages(self, port: int) -> None:
        """Report from now on, too, at which port the process serves the operator's pages."""
        self.add(lambda: {OPS_PORT: port})
        self.repeat()

    def end(self) -> None:
        """The process stops in order: it is expected no more."""
        if self._process and self._store.unavailable_since_ms is None:
            with suppress(StoreUnavailable):
                self._store.leave(self._process)
