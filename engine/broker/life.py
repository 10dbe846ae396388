"""One opening of a broker's log: as a slave, and as the master from a promotion on. A cut needs another opening."""

import logging

from common.cluster.group_record import Incarnation
from engine.broker.group_ops import GroupOps
from engine.composition import Composition
from engine.log import Log
from engine.node import Node
from engine.ops.output_hold import OutputHold
from engine.replication.broker import GroupBroker
from engine.server.server import LinkServer

log = logging.getLogger("penstock.engine")


class BrokerLife:
    """An open log with what serves it.

    Attributes:
        hold: keeps what clients must not see before it is confirmed.
        node: serves clients; None until this broker leads.
        lead_at: position that has to be confirmed before clients are served; None: this broker does not lead.
    """

    def __init__(
        self, parts: Composition, name: str, incarnation: Incarnation, continues: frozenset[Incarnation]
    ) -> None:
        self._parts = parts
        self.store: Log = parts.open_log()
        self.group = GroupBroker(name, incarnation, self.store, continues)
        self.hold = OutputHold(lambda: self.store.end_position)
        self.node: Node | None = None
        self.lead_at: int | None = None
        self._threads = parts.start_threads(self.store)
        self._is_syncing = False

    @property
    def can_serve(self) -> bool:
        """Whether all that the log had when this broker became master is confirmed."""
        return self.lead_at is not None and self.hold.confirmed >= self.lead_at

    def begin_to_lead(self) -> None:
        """The epoch has begun: serve clients once all up to here is confirmed."""
        self.store.lead()
        self.lead_at = self.store.end_position
        self.sync()

    def serve(self, server: LinkServer, ops: GroupOps) -> Node:
        """Make the node, and pass connections to it from now on."""
        self.node = self._parts.make_node(self.store, server.facts, replicas=ops, output_hold=self.hold)
        server.use(self.node)
        self._parts.loop.start(self.node)
        return self.node

    def sync(self) -> None:
        """Have the log synced soon."""
        if not self._is_syncing:
            self._is_syncing = True
            self.store.when_durable(self.store.end_position, self._synced)

    def _synced(self) -> None:
        self._is_syncing = False

    def close(self) -> None:
        """Close the log. Blocks for a sync. Links have to be closed before."""
        for each in self._threads:
            each.stop()
        if self.node is not None:
            self._parts.loop.stop()
            self.node.close()
        self.store.close()
