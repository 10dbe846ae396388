"""The process around a broker, as the broker sees it: `process.py` in production, a simulated process in tests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from engine.broker.group_ops import GroupOps
from engine.broker.standby import Standby
from engine.env.base import Env
from engine.log import Log
from engine.node import Node
from engine.ops.output_hold import OutputHold
from engine.replication.broker import GroupBroker

if TYPE_CHECKING:
    from engine.broker.master_session import FollowingBroker


@dataclass
class RepairCounts:
    """Repairs since the start of the process.

    Attributes:
        damaged: segments with damage that is not repaired.
    """

    ranges: int = 0
    bytes: int = 0
    failed: int = 0
    damaged: int = 0


class RepairPeer(NamedTuple):
    """A broker that has the same bytes below a position, in the epoch of this moment."""

    name: str
    address: str
    epoch: int
    limit: int


def peers_of(group: GroupBroker, addresses: Mapping[str, str]) -> list[RepairPeer]:
    """The brokers that have the same bytes now, as far as they are known, and where they are."""
    names = group.slaves if group.is_master else [group.master]
    found = [RepairPeer(name, addresses.get(name, ""), group.epoch, group.shared_with(name)) for name in names]
    return [each for each in found if each.address and each.limit]


class LendingBroker(Protocol):
    """A broker, as its lender of bytes asks it. Callable from every thread."""

    @property
    def group(self) -> GroupBroker | None: ...

    def repair_peers(self) -> list[RepairPeer]: ...


def lending_slaves(broker: LendingBroker) -> list[RepairPeer]:
    """The in-sync slaves that follow a master; none, of a broker that does not lead."""
    group = broker.group
    return [] if group is None else [each for each in broker.repair_peers() if group.is_in_sync(each.name)]


class MasterConnection(Protocol):
    """A slave's connection to its master; see `master_session.py`."""

    def close(self) -> None:
        """End it for good. Safe from within its own calls."""


class StoppableWork(Protocol):
    """Work beside the loop that goes on until it is stopped."""

    def stop(self) -> None:
        """Return once it has ended."""


class BrokerHost(Protocol):
    """Services of the process.

    Attributes:
        env: files, clocks and chance.
        directory: the data directory; the log is in `directory/log`.
        address: HOST:PORT, or unix:PATH, at which other brokers and controllers reach this one.
    """

    @property
    def env(self) -> Env: ...

    @property
    def directory(self) -> str: ...

    @property
    def address(self) -> str: ...

    def role_is_due(self, delay_s: float = 0.0) -> None:
        """Have the broker's `change_role()` called soon, or after a pause. Callable from every thread."""

    def open_log(self, *, scans_all: bool) -> Log:
        """Open the log of the directory. Blocks, raises as `engine.log.open_log`."""

    def start_threads(self, store: Log) -> Sequence[StoppableWork]:
        """Begin the work beside the loop. It is stopped before the log is closed."""

    def make_node(self, store: Log, *, replicas: GroupOps, output_hold: OutputHold) -> Node:
        """Make the node of a master."""

    def serve(self, node: Node) -> None:
        """Pass new connections to the node, end those of clients, and call it when time or a thread asks for it."""

    def stop_node(self) -> None:
        """Do not call the node any more."""

    def stand_by(self, standby: Standby, *, has_log: bool) -> None:
        """Pass new connections to the standby, and end those of clients. Without a log it serves few operations."""

    def turn_away(self, standby: Standby) -> None:
        """Pass new connections to the standby. Those that are open stay with the node."""

    def end_clients(self) -> None:
        """End the connections of clients, each once its output has left."""

    def in_loop(self, call: Callable[[], None]) -> None:
        """Run a function in the loop while a node or the standby with a log serves. Callable from every thread."""

    def follow(self, broker: "FollowingBroker", address: str) -> MasterConnection:
        """Begin to connect to the master at the address, again and again until it is closed."""
