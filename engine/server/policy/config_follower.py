"""The engine's view of the configuration: followed and reported as applied, but never waited for.

An engine starts and serves without its store: proxies bring names and queue counts along, and topics' retention and groups' attempts have
no end until the configuration has been read.
"""

import logging
from pathlib import Path

import gevent

from common.config import ConfigView, open_store
from common.config.errors import ConfigError
from common.config.store import ConfigStore

log = logging.getLogger("penstock.engine")
RETRY_S = 5.0


class Following:
    """Opens the store in a greenlet of its own, again and again until it answers; `close()` ends it.

    Args:
        url: the store, or None to follow nothing.
        snapshot: where the last state is kept.
    """

    def __init__(self, url: str | None, snapshot: Path) -> None:
        self.view: ConfigView | None = None
        self._url, self._snapshot, self._process = url, snapshot, ""
        self._store: ConfigStore | None = None
        self._opening: gevent.Greenlet | None = None

    def start(self, process: str) -> None:
        """Begin; `process` is the name under which the applied version is reported."""
        self._process = process
        if self._url:
            self._opening = gevent.spawn(self._open, self._url)

    def close(self) -> None:
        """Stop following. Blocks for the snapshot's last write."""
        if self._opening is not None:
            self._opening.kill()
        if self.view is not None:
            self.view.close()
        if self._store is not None:
            self._store.close()

    def _open(self, url: str) -> None:
        told = False
        while self.view is None:
            try:
                self._store = self._store or open_store(url)
                self.view = ConfigView(self._store, self._snapshot, process=self._process)
            except (ConfigError, OSError) as error:
                if not told:
                    log.warning("config=%s: not followed yet: %s", url, error)
                    told = True
                gevent.sleep(RETRY_S)
