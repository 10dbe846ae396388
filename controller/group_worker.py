"""One group at work, in a thread of its own: its turns, again and again.

The thread may block in the coordination for seconds. Links have their own threads, so reports are taken meanwhile.
"""

import logging
import threading
import time

from common.cluster.coordination import Coordination
from common.config.errors import ConfigError
from common.limited_log import LimitedLog
from controller.broker_link import BrokerLink
from controller.group_controller import GroupController
from controller.group_turns import GroupTurns

limited = LimitedLog(logging.getLogger("penstock.controller"))
TICK_S = 0.05
"""Longest time between two decisions: some depend on time alone."""
RETRY_S_MIN, RETRY_S_MAX = 0.02, 0.3


class GroupWorker:
    """
    Attributes:
        group: its name.
        turns: what the thread does.
    """

    def __init__(self, group: str, coordination: Coordination, key: bytes) -> None:
        self.group = group
        self._coordination, self._key = coordination, key
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self.turns = GroupTurns(group, coordination, self._open_link, time.monotonic, _wall_ms)
        self._retry_s = RETRY_S_MIN
        self._thread = threading.Thread(target=self._run, name=f"group {group}", daemon=True)

    def start(self) -> None:
        """Begin to follow the group."""
        self._coordination.watch(self.group, self._on_change)
        self._thread.start()

    def stop(self) -> None:
        """Close the links. A write that is under way may still happen."""
        self._stopped.set()
        self._wake.set()
        self.turns.close()

    @property
    def controller(self) -> GroupController:
        """The latest state of the group; changed in this thread only."""
        return self.turns.controller

    def _open_link(self, broker: str, address: str) -> BrokerLink:
        return BrokerLink(self.group, broker, address, self._key, self._wake.set)

    def _on_change(self, group: str) -> None:
        """In the coordination's thread: the record or the registrations have changed."""
        self.turns.changed()
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait(TICK_S)
            self._wake.clear()
            try:
                self.turns.turn()
                self._retry_s = RETRY_S_MIN
            except Exception as error:
                self.turns.changed()
                if isinstance(error, ConfigError):
                    limited.warning("group=%s: %s", self.group, error, about=self.group)
                else:
                    limited.exception("group=%s: a step failed, trying again", self.group, about=self.group)
                self._stopped.wait(self._retry_s)
                self._retry_s = min(RETRY_S_MAX, self._retry_s * 2)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
