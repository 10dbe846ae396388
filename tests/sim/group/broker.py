"""A simulated broker: the host of a `BrokerCore`, as `engine.broker.process` is, on a machine with faults."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from common.config.errors import ConfigError
from engine.broker.core import TICK_MS, BrokerCore
from engine.broker.group_ops import GroupOps
from engine.broker.host import StoppableWork
from engine.broker.incarnations import Incarnations
from engine.broker.life import BrokerLife
from engine.broker.master_session import FollowingBroker
from engine.broker.standby import Standby
from engine.config import LogConfig
from engine.env.simulated import PowerCut, ProcessEnded
from engine.errors import CheckpointError, EngineError
from engine.log import Log, open_log
from engine.log.upkeep.truncation import TruncationOrder
from engine.log.write.failed_sync import is_marked
from engine.node import Node, NodeConfig, NodeHost
from engine.ops.output_hold import UNHELD_ROLES, OutputHold
from tests.sim.group.coordination import SimulatedCoordination
from tests.sim.group.greeting import KEYS
from tests.sim.group.lender import SimulatedLender
from tests.sim.group.link_peer import LinkPeer
from tests.sim.group.machine import BrokerMachine, KeptOnMachine
from tests.sim.group.master_line import MasterLine
from tests.sim.group.network import End
from tests.sim.group.process import Process
from tests.sim.machine import EndAt
from tests.sim.sent import Broken

if TYPE_CHECKING:
    from tests.sim.group.cluster import Cluster

DIRECTORY = "/broker"
GROUP = "g"
RESTART_MS = 200
"""Pause of the supervisor before it starts an ended process again."""


class WatchedCore(BrokerCore):
    """Its cuts are checked, and what it goes on with."""

    _host: "Broker"

    def cut_log(self, position: int) -> None:
        self._host.cluster.checks.invariants.cuts(self._host, position)
        super().cut_log(position)

    def _cease(self, life: BrokerLife) -> None:
        super()._cease(life)
        if self.life is not None and self.life.store is life.store:
            self._host.cluster.checks.invariants.follows_on(self._host, life)


class Broker(Process):
    """One broker with its machine.

    Attributes:
        core: None while the process is down.
        served: the node or standby that new links are given to.
        looped: the node that time and threads call; None: there is none.
        restart_ms: pause of the supervisor.
        opened: number of times that its log was opened.
        has_new_link: a link was authenticated in this turn.
    """

    def __init__(self, cluster: "Cluster", name: str, log: LogConfig, node: dict[str, int], drift_ppm: int) -> None:
        super().__init__(cluster, name)
        self.directory, self.address = DIRECTORY, f"{name}:1"
        self.env = BrokerMachine(
            self.world, name, lambda step: self.run(self.number, step), cluster.scenario.threads, drift_ppm
        )
        self._log, self._node = log, node
        self.core: BrokerCore | None = None
        self.coordination: SimulatedCoordination | None = None
        self.served: Node | Standby
        self.looped: Node | Standby | None = None
        self.peers: dict[LinkPeer, None] = {}
        self.restart_ms = RESTART_MS
        self.deaths: list[str] = []
        self.opened = 0
        self.has_new_link = False
        self._is_role_due = False
        self._woken_ms = -1

    # -- the process

    def start(self) -> None:
        """Start the process, again after a while if that fails."""
        if self.is_up:
            return
        had_power = self.has_power
        self.begin()
        if not had_power:
            self.env.boots += 1
            self.network.machine_started(self)
        self._is_role_due, self._woken_ms = False, -1
        try:
            self._begin()
        except (OSError, EngineError, ConfigError) as error:
            self.end(power_cut=False, reason=f"cannot start: {error}")
        except (ProcessEnded, EndAt) as error:
            self.end(power_cut=False, reason=f"dies at its start: {error}")
        except PowerCut as error:
            self.end(power_cut=True, reason=str(error))

    def _begin(self) -> None:
        env = self.env
        incarnations = Incarnations(
            KeptOnMachine(env, DIRECTORY), str(env.boots), env.random_bytes,
            sync_failed=is_marked(env, f"{DIRECTORY}/log"),
        )  # fmt: skip
        self.coordination = self.cluster.coordination_of(self)
        self.core = WatchedCore(
            self.name, GROUP, self, incarnations, self.coordination, keys=KEYS, can_begin=self.cluster.is_first(self)
        )
        self.served = self.core.standby
        if any(path.startswith(f"{DIRECTORY}/log/") and path.endswith(".seg") for path in env.files):
            self.core.open()
        self.world.note(self.name, "start", self.core.incarnations.present)
        self.coordination.watch(GROUP, self.core.known.look)
        self.core.register()
        self.later(TICK_MS, self._tick)

    def end(self, *, power_cut: bool, reason: str) -> None:
        super().end(power_cut=power_cut, reason=reason)
        self.deaths.append(reason)
        self._forget_process()
        if power_cut:
            self.env.crash(self.world.random_of(f"crash-{self.name}-{self.number}-{self.world.now_ms}"))
            self.cluster.checks.power_cut(self)
        else:
            self.env.end_process()
        self.cluster.checks.ended(self)
        self.world.after(self.restart_ms, self.start)

    def stop(self) -> None:
        """Stop in order, as `BrokerProcess` does; the supervisor starts it again."""
        core = self.core
        assert core is not None and self.coordination is not None
        life = core.life
        if life is not None and life.node is not None:
            life.node.release_waiting()
        for peer in list(self.peers):
            peer.close("stopping")
        if life is not None and life.node is not None:
            node, self.looped = life.node, None
            node.close()
            try:
                life.store.checkpoint()
            except CheckpointError:
                pass  # the next start scans more
        core.unfollow()
        self.coordination.unregister(GROUP, self.name)
        self.coordination.close()
        core.life = None
        if life is not None:
            life.node = None
            life.close()
        core.incarnations.end()
        self.end(power_cut=False, reason="stopped in order")

    def _forget_process(self) -> None:
        if self.coordination is not None:
            self.cluster.session_ends(self.coordination)
        self.core = self.coordination = self.looped = None
        self.peers.clear()

    def accept(self, end: End) -> None:
        self.peers[LinkPeer(self, end)] = None

    def after_call(self) -> None:
        if self.core is not None:
            try:
                self.core.turns.run()
            except Exception:  # by an injected fault, and what the broker has told before holds
                self._check_turn()
                raise
            self._check_turn()

    def _check_turn(self) -> None:
        try:
            self.cluster.checks.turn(self)
        except (
            AttributeError,
            LookupError,
            TypeError,
        ) as error:  # it would pass for an exception of the broker's loop, which goes on
            raise Broken(f"a check does not fit the broker: {error}") from error

    def _tick(self) -> None:
        self.later(self.cluster.scenario.tick_ms, self._tick)
        if self.core is not None:
            self.core.tick()

    # -- as the host of the core

    def role_is_due(self, delay_s: float = 0.0) -> None:
        if delay_s:
            self.later(int(1000 * delay_s), self.role_is_due)
        elif not self._is_role_due:
            self._is_role_due = True
            self.later(0, self._change_role)

    def _change_role(self) -> None:
        self._is_role_due = False
        assert self.core is not None
        self.core.change_role()

    def open_log(self, *, scans_all: bool) -> Log:
        self.opened += 1
        order = self.env.files.get(f"{DIRECTORY}/truncate")
        store = open_log(
            self.env, DIRECTORY, self._log, notify=lambda: self.later(0, self._fetched), scans_all=scans_all
        )
        if self.cluster.scenario.slave_reads:
            store.cold.borrow_from(SimulatedLender(self))
        if order is not None:
            position = TruncationOrder.decode(bytes(order.seen), "the order").position
            self.cluster.checks.invariants.was_cut(self, position)
        return store

    def _fetched(self) -> None:
        if self.looped is not None:
            self.looped.turn_end()

    def start_threads(self, store: Log) -> Sequence[StoppableWork]:
        return ()

    def make_node(self, store: Log, *, replicas: GroupOps, output_hold: OutputHold) -> Node:
        host = NodeHost(
            self.env.clock, self.env.random_bytes, self.env.random_fraction, in_loop=self.in_loop,
            wake_at=self._wake_at, die=self.env.die, stop=lambda: None, facts=dict,
        )  # fmt: skip
        return Node(store, NodeConfig(KEYS, GROUP, **self._node), host, replicas=replicas, output_hold=output_hold)

    @property
    def are_timers_missing(self) -> bool:
        """Whether the broker leads, and could not read all delayed messages when it began to."""
        return isinstance(self.looped, Node) and self.looped.timers.are_missing

    def serve(self, node: Node) -> None:
        self._use(node)
        self.looped = node
        self._tick_node()

    def stop_node(self) -> None:
        self.looped = None

    def stand_by(self, standby: Standby, *, has_log: bool) -> None:
        self._use(standby)
        self.looped = standby if has_log else None

    def turn_away(self, standby: Standby) -> None:
        self.served = standby

    def end_clients(self) -> None:
        for peer in self._clients():
            peer.close_when_sent()

    def _use(self, served: Node | Standby) -> None:
        self.served = served
        for peer in self._clients():
            peer.close("another node serves from now on")

    def _clients(self) -> list[LinkPeer]:
        return [each for each in self.peers if each.peer_state.role not in UNHELD_ROLES]

    def follow(self, broker: FollowingBroker, address: str) -> MasterLine:
        return MasterLine(self, broker, address.partition(":")[0], self.env.clock.monotonic_ms)

    # -- the loop under the node

    def in_loop(self, call: Callable[[], None]) -> None:
        node = self.looped
        self.later(0, lambda: call() if self.looped is node and node is not None else None)

    def _wake_at(self, due_ms: int) -> None:
        if self.looped is not None:
            self._arm(due_ms)

    def _arm(self, due_ms: int) -> None:
        self._woken_ms, node = due_ms, self.looped

        def wake() -> None:
            if self.looped is node and self._woken_ms == due_ms:
                self._tick_node()

        number = self.number
        self.world.at(self.env.world_ms(due_ms), lambda: self.run(number, wake))

    def _tick_node(self) -> None:
        if self.looped is not None:
            next_ms = self.looped.tick(self.env.clock.monotonic_ms())
            if next_ms is not None and self.looped is not None:
                self._arm(next_ms)
