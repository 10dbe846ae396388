"""A broker group with its controllers, its coordination and its clients, in one world."""

from typing import TYPE_CHECKING

from common.cluster.memory_coordination import MemoryCoordination
from engine.config import LogConfig
from tests.sim.group.broker import GROUP, Broker
from tests.sim.group.checks import Checks
from tests.sim.group.clients import GroupClient, GroupDelayedSender, GroupPuller, GroupReader, GroupSender
from tests.sim.group.controller import Controller
from tests.sim.group.coordination import SimulatedCoordination
from tests.sim.group.ledger import CLASSES, Faulted, Ledger
from tests.sim.group.network import Network
from tests.sim.group.process import Process
from tests.sim.group.proxy import Proxy
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.group.scenario import GroupScenario

LOG = {"start_wait_ms": 0, "retention_ms": 0, "look_up": (), "id_window_bytes_max": 1 << 20}


class Cluster:
    """
    Attributes:
        server: the coordination's content, as one that is always reached sees it.
        lent: bytes that slaves have lent for cold reads.
    """

    def __init__(self, world: World, scenario: "GroupScenario") -> None:
        self.world, self.scenario = world, scenario
        self.random = world.random_of("cluster")
        self.network = Network(world)
        self.server = MemoryCoordination()
        self.lent = 0
        self.faulted = Faulted()
        self.ledger = Ledger(self.faulted)
        self.checks = Checks(self)
        self.server.watch(GROUP, lambda group: self.checks.record_changed())
        self.brokers = {
            name: Broker(self, name, LogConfig(**LOG, **scenario.log), scenario.node, scenario.drifts_ppm[number])
            for number, name in enumerate("abc"[: scenario.brokers])
        }
        self.controllers = {
            name: Controller(self, name, scenario.drifts_ppm[-1 - number])
            for number, name in enumerate(("c1", "c2")[: scenario.controllers])
        }
        self.proxy = Proxy(self, "proxy")
        self.clients: list[GroupClient] = []

    @property
    def servers(self) -> dict[str, Process]:
        """Brokers and controllers, which may fail."""
        return {**self.brokers, **self.controllers}

    def start(self) -> None:
        """Start everything."""
        for broker in self.brokers.values():
            broker.start()
        for controller in self.controllers.values():
            controller.start()
        self.proxy.start()
        scenario = self.scenario
        self.clients = [
            GroupSender(self, each, scenario.pause_ms, scenario.bytes_max)
            for each in CLASSES
            if each.topic in scenario.topics
        ]
        if scenario.timers:
            self.clients.append(GroupDelayedSender(self, 3 * scenario.pause_ms))
        self.clients += [GroupPuller(self, f"puller-{number}", scenario.retry) for number in range(2)]
        self.clients.append(GroupReader(self, "reader"))

    def is_first(self, broker: Broker) -> bool:
        """Whether the broker was started with --first."""
        return broker is next(iter(self.brokers.values()))

    # -- the coordination

    def coordination_of(self, process: Process) -> SimulatedCoordination:
        """A session of a process that starts."""
        return SimulatedCoordination(process, self.server.peer())

    def session_ends(self, coordination: SimulatedCoordination) -> None:
        """Its process has ended: the server drops the session after its time."""
        self.world.after(self.random.randint(0, self.scenario.session_ms), coordination.close)

    # -- the end

    def master(self) -> Broker | None:
        """The broker that serves under the newest record."""
        found = self.server.record(GROUP)
        broker = None if found is None else self.brokers[found.record.master]
        if broker is None or broker.core is None or broker.core.life is None or broker.core.life.node is None:
            return None
        return broker

    def what_is_missing(self) -> str:
        """Why the group is not complete and quiet; "" when it is."""
        found, master = self.server.record(GROUP), self.master()
        if found is None or master is None:
            return f"no master serves: {None if found is None else found.record}"
        if len(found.record.in_sync) < len(self.brokers):
            return f"in sync are only {', '.join(found.record.in_sync)}: {found.record.reason}"
        ends = {
            name: -1 if each.core is None or each.core.life is None else each.core.life.store.end_position
            for name, each in self.brokers.items()
        }
        if len(set(ends.values())) > 1:
            return f"the logs end differently: {ends}"
        if self.ledger.open:
            names = [each.name for each in self.ledger.sent.values() if each.state == "open"]
            return f"{self.ledger.open} sends have no answer, as {names[0]}"
        return ""

    def what_is_undelivered(self) -> str:
        """An acknowledged message that the group did not get; "" when it has all."""
        ledger = self.ledger
        for sent in ledger.sent.values():
            if sent.state == "kept" and self.faulted.keeps(sent.topic) and sent.name not in ledger.delivered:
                return f"{sent.name} was acknowledged, and is not delivered"
            if sent.state == "kept" and self.faulted.keeps(sent.topic) and sent.name not in ledger.read:
                return f"{sent.name} was acknowledged, and is not read by position"
        return ""
