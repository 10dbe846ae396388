"""One group at work, turn by turn: reads and writes its record, keeps its links, decides when it is elected.

Without threads and sockets: links, clocks and the coordination are passed in.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from common.cluster.coordination import Coordination, Registration, VersionedRecord
from common.config.errors import ConfigError
from common.limited_log import LimitedLog
from controller.group_controller import GroupController, Heard, Step

log = logging.getLogger("penstock.controller")
limited = LimitedLog(log)


class RecordLink(Protocol):
    """The link to one registered broker; see `broker_link.py`."""

    @property
    def address(self) -> str: ...

    @property
    def heard(self) -> Heard | None: ...

    def push(self, record: VersionedRecord) -> None:
        """Send a record, unless the broker has it already."""

    def close(self) -> None:
        """End the link."""


class GroupTurns:
    """
    Args:
        open_link: begins a link to a broker, by its name and address.
        now_s: the monotonic clock. wall_ms: Unix time.
    Attributes:
        controller: what is known of the group; changed in `turn()` only.
        changes: records written by this process.
    """

    def __init__(
        self, group: str, coordination: Coordination, open_link: Callable[[str, str], RecordLink],
        now_s: Callable[[], float], wall_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self.group, self.changes = group, 0
        self.controller = GroupController(now_s())
        self._coordination, self._open_link, self._now_s, self._wall_ms = coordination, open_link, now_s, wall_ms
        self._links: dict[str, RecordLink] = {}
        self._brokers: dict[str, Registration] = {}
        self._is_stale = True
        self._remembered = 0

    def close(self) -> None:
        """End the links. A write that is under way may still happen."""
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

    def weight(self, is_here: Callable[[str], bool]) -> int:
        """The number of brokers at addresses of this machine; a master counts twice."""
        record = self.controller.record
        here = [name for name, each in self._brokers.items() if is_here(each.address)]
        return len(here) + (record is not None and record.master in here)

    def changed(self) -> None:
        """The record or the registrations have changed, or are not known. Callable from every thread."""
        self._is_stale = True

    def turn(self) -> None:
        """Read what has changed, and decide if this process is elected. Blocks; raises ConfigError: try again."""
        if self._is_stale:
            self._is_stale = False  # before reading: a change meanwhile has to be read, too
            self._read()
        if not self._coordination.is_controller():
            return
        now_s = self._now_s()
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
        self.controller.seen(found, self._now_s())
        for name, link in list(self._links.items()):
            if name not in self._brokers or self._brokers[name].address != link.address:
                self._links.pop(name).close()
        for name, registration in self._brokers.items():
            if name not in self._links:
                self._links[name] = self._open_link(name, registration.address)

    def _write(self, step: Step) -> None:
        """Raises ConfigError: the record may have changed, and nothing more is decided before it is read again."""
        assert step.record is not None
        record = replace(step.record, at_ms=self._wall_ms())
        written = VersionedRecord(record, self._coordination.write(self.group, record, step.version))
        self.controller.seen(written, self._now_s())
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
