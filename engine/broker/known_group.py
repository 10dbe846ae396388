"""A broker's group as the coordination and the controllers have told it: the newest record, and where its brokers are."""

import logging
from collections.abc import Callable

from common.cluster.coordination import Coordination, Registration
from common.cluster.group_record import GroupRecord, Incarnation
from common.config.errors import ConfigError
from common.limited_log import LimitedLog

limited = LimitedLog(logging.getLogger("penstock.engine"))

CONTACT_S_MAX = 1.5
"""A master without slaves confirms nothing when its last contact with the coordination is older."""


class KnownGroup:
    """
    Args:
        name: of the group.
        on_news: called when something may have changed, also in the coordination's thread.
    Attributes:
        newest: the newest record with its version; None: none is known.
        addresses: HOST:PORT or unix:PATH by broker, where it was last.
    """

    def __init__(self, name: str, coordination: Coordination, on_news: Callable[[], None]) -> None:
        self.name, self._coordination, self._on_news = name, coordination, on_news
        self.newest: tuple[int, GroupRecord] | None = None
        self.addresses: dict[str, str] = {}
        self._holders: dict[str, Incarnation] = {}
        self._own: set[Incarnation] = set()
        self._is_older = False  # the record in the coordination, than the newest one

    def learn(self, version: int, record: GroupRecord) -> None:
        """Take the record if it is newer than all that are known."""
        if self.newest is None or (record.epoch, version) > (self.newest[1].epoch, self.newest[0]):
            self.newest = version, record
            self._on_news()

    def look(self, group: str) -> None:
        """Read the record and the addresses. In the coordination's thread, which may block."""
        try:
            found = self._coordination.record(group)
            brokers = self._coordination.brokers(group)
        except ConfigError as error:
            limited.warning("broker_group=%s: %s", group, error)
            return
        # A master that only lost the coordination leads on: its slaves need the address that it had.
        self.addresses.update({name: each.address for name, each in brokers.items()})
        self._holders = {name: each.incarnation for name, each in brokers.items()}
        if found is not None:
            self.learn(found.version, found.record)
        self._is_older = found is not None and self.newest != (found.version, found.record)
        self._on_news()

    def has_contact(self) -> bool:
        """Whether the coordination has answered a short time ago, and has no older record than this process.

        One that was put back from an older copy does not show that no other broker was made master.
        """
        return not self._is_older and self._coordination.contact_age_s() <= CONTACT_S_MAX

    def is_taken(self, broker: str) -> bool:
        """Whether another process is registered as the broker, as far as the coordination has told."""
        holder = self._holders.get(broker)
        return holder is not None and holder not in self._own

    def register(self, broker: str, incarnation: Incarnation, address: str) -> None:
        """Register this process as the broker, in the place of an earlier incarnation of it."""
        self._own.add(incarnation)
        self._coordination.register(self.name, broker, Registration(incarnation, address))
