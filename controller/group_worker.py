"""One group at work, in a thread of its own: reads and writes its record, keeps its links, decides when it is elected.

The thread may block in the coordination for seconds. Links have their own threads, so reports are taken meanwhile.
"""

import logging
import threading
import time
from dataclasses import replace

from common.cluster.coordination import Coordination, Registration, VersionedRecord
from common.config.errors import ConfigError
from common.limited_log import LimitedLog
from controller.broker_link import BrokerLink
from controller.group_controller import GroupController, Step

log = logging.getLogger("penstock.controller")
limited = LimitedLog(log)
TICK_S = 0.05
"""Longest time between two decisions: some depend on time alone."""
RETRY_S_MIN, RETRY_S_MAX = 0.02, 0.3


class GroupWorker:
    """
    Attributes:
        group: its name.
        controller: what is known of it; changed in this thread only.
        changes: records written by this process.
    """

    def __init__(self, group: str, coordination: Coordination, cluster_key: bytes) -> None:
        self.group, self.changes = group, 0
        self.controller = GroupController(time.monotonic())
        self._coordination, self._key = coordination, cluster_key
        self._links: dict[str, BrokerLink] = {}
        self._brokers: dict[str, Registration] = {}
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._is_stale = True
        self._remembered = 0
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
        for link in list(self._links.values()):
            link.close()

    @property
    def registered(self) -> int:
        """Number of registered brokers."""
        return len(self._brokers)

    @property
    def linked(self) -> int:
        """Number of brokers that have reported over an open link."""
        return sum(link.heard is not None for link in list(self._links.values()))

    def _on_change(self, group: str) -> None:
        """In the coordination's thread: the record or the registrations have changed."""
        self._is_stale = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait(TICK_S)
            self._wake.clear()
            try:
                self._turn()
                self._retry_s = RETRY_S_MIN
            except Exception as error:
                self._is_stale = True
                if isinstance(error, ConfigError):
                    limited.warning("group=%s: %s", self.group, error, about=self.group)
                else:
                    limited.exception("group=%s: a step failed, trying again", self.group, about=self.group)
                self._stopped.wait(self._retry_s)
                self._retry_s = min(RETRY_S_MAX, self._retry_s * 2)

    def _turn(self) -> None:
        if self._is_stale:
            self._is_stale = False  # before reading: a change meanwhile has to be read, too
            self._read()
        if not self._coordination.is_controller():
            return
        now_s = time.monotonic()
        heard = {name: found for name, link in self._links.items() if (found := link.heard) is not None}
        step = self.controller.decide(self._brokers, heard, now_s)
        if step.is_news:
            log.warning("group=%s: %s", self.group, step.sentence or "it has a master again")
        if step.record is not None:
            self._write(step)
        self._push()
        self._remember()

    def _read(self) -> None:
        found = self._coordination.record(self.group)
        self._brokers = self._coordination.brokers(self.group)
        self.controller.seen(found, time.monotonic())
        for name, link in list(self._links.items()):
            if name not in self._brokers or self._brokers[name].address != link.address:
                self._links.pop(name).close()
        for name, registration in self._brokers.items():
            if name not in self._links:
                self._links[name] = BrokerLink(self.group, name, registration.address, self._key, self._wake.set)

    def _write(self, step: Step) -> None:
        """Raises ConfigError: the record may have changed, and nothing more is decided before it is read again."""
        assert step.record is not None
        record = replace(step.record, at_ms=time.time_ns() // 1_000_000)
        written = VersionedRecord(record, self._coordination.write(self.group, record, step.version))
        self.controller.seen(written, time.monotonic())
        self._push()
        self.changes += 1
        log.info(
            "group=%s epoch=%d version=%d state=%s master=%s in_sync=%s: %s", self.group, record.epoch, written.version,
            record.state.value, record.master, ",".join(sorted(record.in_sync)), record.reason,
        )  # fmt: skip

    def _remember(self) -> None:
        """Add the record to the group's history. Its writer may have ended before it could."""
        record, version = self.controller.record, self.controller.version
        if record is None or version == self._remembered:
            return
        self._remembered = version
        try:
            self._coordination.remember(self.group, VersionedRecord(record, version))
        except ConfigError as error:
            limited.warning("group=%s: the change is missing in its history: %s", self.group, error, about=self.group)

    def _push(self) -> None:
        """Send the record to the brokers that have an older one. They read it from the coordination, too."""
        if self.controller.record is not None:
            record = VersionedRecord(self.controller.record, self.controller.version)
            for link in self._links.values():
                link.push(record)
