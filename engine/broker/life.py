"""One opening of a broker's log: as a slave, and as the master from a promotion on. A cut needs another opening."""

import logging
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter

from common.limited_log import LimitedLog
from engine.broker.group_ops import GroupOps
from engine.broker.host import BrokerHost, StoppableWork
from engine.broker.incarnations import Incarnations
from engine.log import Log
from engine.node import Node
from engine.ops.native import OutputHold
from engine.replication.broker import GroupBroker

limited = LimitedLog(logging.getLogger("penstock.engine"))


class BrokerLife:
    """An open log with what serves it.

    Args:
        before: has led, and handed over to the next master: its log stays open, and this life has it from now on.
    Attributes:
        appender, syncer: of the log, for what is asked in every turn: its end, and how far it is synced.
        hold: keeps what clients must not see before it is confirmed.
        node: serves clients; None until this broker leads.
        unconfirmed, not_everywhere: (position, callback) of what waits until the group has confirmed a position, and of
            what waits until it is on the disks of all members; lowest position first.
        lead_at: position that has to be confirmed before clients are served; None: this broker does not lead.
    """

    def __init__(
        self, host: BrokerHost, name: str, numbers: Incarnations, before: "BrokerLife | None" = None
    ) -> None:  # fmt: skip
        self._host = host
        if before is not None:
            before.store.cease()
        self.store: Log = before.store if before is not None else host.open_log(scans_all=numbers.may_be_torn)
        self.group = GroupBroker(
            name, numbers.present, self.store, numbers.continues, torn_at=numbers.torn_at, is_checked=numbers.is_checked
        )
        if not numbers.is_checked:
            self._check(numbers)
        appender = self.appender = self.store.appender
        self.syncer = self.store.writer.durability.syncer
        self.hold = OutputHold(partial(attrgetter("end_position"), appender))
        self.node: Node | None = None
        self.lead_at: int | None = None
        self.not_everywhere: deque[tuple[int, Callable[[], None]]] = deque()
        self.unconfirmed: deque[tuple[int, Callable[[], None]]] = deque()
        self._deleted = (0, 0)  # position below which the master has deleted segments, end of the log then
        self._threads: Sequence[StoppableWork] = host.start_threads(self.store) if before is None else before._threads
        self._is_syncing = False

    def _check(self, numbers: Incarnations) -> None:
        """Note what a power cut has torn; the log does not stay open when that cannot be noted."""
        try:
            numbers.check(self.group.torn_at)
        except BaseException:
            self.store.close()
            raise

    @property
    def can_serve(self) -> bool:
        """Whether all that the log had when this broker became master is confirmed."""
        return self.lead_at is not None and self.hold.confirmed >= self.lead_at

    @property
    def unconfirmed_bytes(self) -> int:
        """Of a master's log."""
        return self.store.end_position - self.hold.confirmed if self.lead_at is not None else 0

    def begin_to_lead(self) -> None:
        """The epoch has begun: serve clients once all up to here is confirmed."""
        self.store.lead(self._when_confirmed)
        self.lead_at = self.store.end_position
        self.sync()

    def serve(self, ops: GroupOps) -> None:
        """Make the node, and pass connections to it from now on."""
        self.node = self._host.make_node(self.store, replicas=ops, output_hold=self.hold)
        self.node.stored.when_everywhere = self._when_everywhere
        self.node.reads.has_slave = self._has_slave
        self.adopted()
        self._host.serve(self.node)

    def sync(self) -> None:
        """Have the log synced soon."""
        if not self._is_syncing:
            self._is_syncing = True
            self.store.when_synced(self.store.end_position, self._synced)

    def call_confirmed(self) -> None:
        """Call what has waited for the positions that the group has confirmed."""
        _call(self.unconfirmed, self.hold.confirmed)
        _call(self.not_everywhere, self.group.confirmed.replicated_fsync)

    def follow_deletions(self) -> None:
        """As a slave, remove the segments that the master has removed, once their record is confirmed and synced."""
        deleted_to = self.store.retention.deleted_to()
        if deleted_to > self._deleted[0]:
            self._deleted = deleted_to, self.store.end_position
        if min(self.group.followed, self.store.durable_position) >= self._deleted[1]:
            self.store.retention.follow(self._deleted[0])

    def adopted(self) -> None:
        """The group has another record."""
        if self.node is not None:
            self.node.stored.is_replicated = self.group.is_replicated

    def when_everywhere(self, callback: Callable[[], None]) -> None:
        """Call back, at a confirmation, once all members have on their disks what this master has now."""
        self._when_everywhere(self.store.end_position, callback)

    def _has_slave(self) -> bool:
        return any(map(self.group.is_in_sync, self.group.slaves))

    def _when_everywhere(self, position: int, callback: Callable[[], None]) -> None:
        insort(self.not_everywhere, (position, callback), key=lambda waiting: waiting[0])
        self.store.when_synced(self.store.end_position, lambda: None)

    def _when_confirmed(self, position: int, callback: Callable[[], None]) -> None:
        if position <= self.hold.confirmed:
            callback()
        else:
            insort(self.unconfirmed, (position, callback), key=lambda waiting: waiting[0])

    def _synced(self) -> None:
        self._is_syncing = False

    def close(self) -> None:
        """Close the log. Blocks for a sync. Links have to be closed before."""
        for each in self._threads:
            each.stop()
        if self.node is not None:
            self._host.stop_node()
            self.node.close()
        self.store.close()


def _call(waiting: deque[tuple[int, Callable[[], None]]], position: int) -> None:
    """Call what waits for a position up to this one."""
    while waiting and waiting[0][0] <= position:
        callback = waiting.popleft()[1]
        try:
            callback()
        except Exception:
            limited.exception("position=%d: a callback after the confirmation failed", position)
