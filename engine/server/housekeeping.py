"""What the log does by the clock: a greenlet that lets it delete and look at its disk, and the topics' retention as configured."""

import logging
from collections.abc import Callable
from typing import Any

import gevent

from common.dead_letters import group_of, is_dead_letter_topic
from engine.log import Log
from engine.log.read.start_offsets import NONE, Retention
from engine.log.upkeep.retention import Retainer
from engine.server.policy.config_follower import Following

log = logging.getLogger("penstock.engine")
AFTER_FAULT_S = 5.0


class ConfiguredRetention:
    """Each topic's own retention out of the configuration that the engine follows.

    Args:
        is_configured: whether there is a configuration at all; until it has been read, nothing is too old.
    """

    def __init__(self, following: Following, *, is_configured: bool) -> None:
        self._following, self._is_configured = following, is_configured

    @property
    def generation(self) -> int:
        """Rises with each change."""
        return self._following.view.generation if self._following.view is not None else 0

    @property
    def is_known(self) -> bool:
        """Whether definitions can be looked up, or there are none."""
        return self._following.view is not None or not self._is_configured

    def of(self, topic: str) -> Retention:
        """The topic's own retention; one without a definition has none."""
        view = self._following.view
        if view is None:
            return NONE
        if is_dead_letter_topic(topic):
            group = view.group(group_of(topic))
            return NONE if group is None else Retention(group.dead_letter_retention_ms, 0)
        found = view.topic(topic)
        return NONE if found is None else Retention(found.retention_ms, found.retention_bytes)


def wake_by(store: Log, on_woken: Callable[[], None]) -> Any:
    """Have `on_woken()` called in the loop whenever the log's thread has fetched what a reader waits for. Close what is returned."""
    news = gevent.get_hub().loop.async_()
    news.start(on_woken)
    store.cold.notify = news.send
    return news


class Housekeeping:
    """Calls `step()` as often as it asks for it, until `close()`."""

    def __init__(self, retainer: Retainer) -> None:
        self._retainer = retainer
        self._greenlet = gevent.spawn(self._run)

    def close(self) -> None:
        """Stop at once; a deletion that has begun is begun again by the next start."""
        self._greenlet.kill()

    def _run(self) -> None:
        while True:
            try:
                pause_s = self._retainer.step() / 1000
            except Exception:
                log.exception("retention failed, trying again")
                pause_s = AFTER_FAULT_S
            gevent.sleep(pause_s)
