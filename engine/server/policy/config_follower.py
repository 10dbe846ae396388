"""The engine's view of the configuration: followed, and reported as applied, but never waited for.

An engine starts and serves without the configuration store, because proxies bring names and queue counts along. Until
the configuration has been read, no record is too old and no message has had its last attempt.
"""

import logging
from pathlib import Path

import gevent

from common.config import ConfigView, open_store
from common.config.errors import ConfigError
from common.config.store import ConfigStore

log = logging.getLogger("penstock.engine")
RETRY_S = 5.0


class ConfigFollower:
    """Opens the store in its own greenlet and retries until the store answers; `close()` ends it.

    Args:
        url: the store, or None to follow nothing.
        snapshot: file that keeps the last state.

    Attributes:
        view: the configuration, None until it has been read.
        store: its store, None until it is open.
    """

    def __init__(self, url: str | None, snapshot: Path) -> None:
        self.view: ConfigView | None = None
        self._url, self._snapshot, self._process, self._ops_port = url, snapshot, "", 0
        self.store: ConfigStore | None = None
        self._opening: gevent.Greenlet | None = None

    def start(self, process: str, ops_port: int = 0) -> None:
        """Begin; the applied version is reported under the name `process`, with the port of its operator's pages."""
        self._process, self._ops_port = process, ops_port
        if self._url:
            self._opening = gevent.spawn(self._open, self._url)

    def close(self) -> None:
        """Stop following. Blocks for the last write of the snapshot."""
        if self._opening is not None:
            self._opening.kill()
        if self.view is not None:
            self.view.close()
        if self.store is not None:
            self.store.close()

    def _open(self, url: str) -> None:
        told = False
        while self.view is None:
            try:
                self.store = self.store or open_store(url)
                self.view = ConfigView(self.store, self._snapshot, process=self._process)
                self.view.own_report.tell_pages(self._ops_port)
            except (ConfigError, OSError) as error:
                if not told:
                    log.warning("config=%s: cannot be read: %s: retry every %g s", url, error, RETRY_S)
                    told = True
                gevent.sleep(RETRY_S)
