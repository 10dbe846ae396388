"""Following a coordination's content by level, not by event: what is read is compared with what was told last."""

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import Any

from common.cluster.coordination import Coordination, Registration, Watcher
from common.config.errors import StoreDamaged, StoreUnavailable
from common.limited_log import LimitedLog

limited = LimitedLog(logging.getLogger("penstock.cluster"))


class FollowingCoordination(Coordination):
    """A coordination with one thread, which keeps the registrations and tells the watchers.

    Args:
        pause_s: time between two looks when no event comes.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._wanted: dict[tuple[str, str], Registration] = {}
        self._standing = ""
        self._watchers: list[tuple[str, Watcher]] = []
        self._group_watchers: list[Callable[[], None]] = []
        self._told: dict[str, Hashable] = {}
        self._told_groups: Hashable = None
        self._wake = threading.Event()
        self._closed = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def _keep_names(self) -> None:
        """Take the names of `_wanted` and the place of `_standing` where they are free. Raises StoreUnavailable."""

    @abstractmethod
    def _look(self, group: str) -> Hashable:
        """The state of the group that watchers are told changes of. Raises StoreUnavailable, StoreDamaged."""

    @abstractmethod
    def _look_at_groups(self) -> Hashable:
        """The groups and the controller, which watchers of all groups are told changes of. Raises StoreUnavailable."""

    @property
    @abstractmethod
    def _name(self) -> str: ...

    def register(self, group: str, broker: str, registration: Registration) -> None:
        self._wanted[group, broker] = registration
        self._follow()

    def watch(self, group: str, watcher: Watcher) -> None:
        self._watchers.append((group, watcher))
        self._told.pop(group, None)
        self._follow()

    def watch_groups(self, watcher: Callable[[], None]) -> None:
        self._group_watchers.append(watcher)
        self._told_groups = None
        self._follow()

    def stand(self, name: str) -> None:
        self._standing = name
        self._follow()

    def _tell_again(self) -> None:
        """Tell all watchers at the next look: events may have been lost with the contact."""
        self._told.clear()
        self._told_groups = None
        self._wake.set()

    def _follow(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="coordination", daemon=True)
                self._thread.start()
        self._wake.set()

    def _stop_following(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(self._pause_s)
            self._wake.clear()
            try:
                self._follow_once()
            except StoreUnavailable as error:
                limited.warning("%s", error, about=self._name)
                self._told.clear()
                self._told_groups = None
            except Exception:
                limited.exception("%s: following changes failed, trying again", self._name)

    def _follow_once(self) -> None:
        if self._closed or not self._has_contact():
            return
        self._keep_names()
        for group in dict.fromkeys(group for group, _ in self._watchers):
            try:
                seen = self._look(group)
            except StoreDamaged as error:
                limited.error("group=%s: %s", group, error, about=group)
                continue
            if self._told.get(group) != seen:
                self._told[group] = seen
                self._tell([watcher for of, watcher in self._watchers if of == group], group)
        if self._group_watchers:
            groups = self._look_at_groups()
            if self._told_groups != groups:
                self._told_groups = groups
                self._tell(self._group_watchers)

    def _has_contact(self) -> bool:
        return True

    def _tell(self, watchers: list[Any], *arguments: str) -> None:
        for watcher in list(watchers):
            try:
                watcher(*arguments)
            except Exception:
                limited.exception("%s: a watcher of changes failed", self._name)
