"""The process of a broker of a group with replicas: sockets, greenlets and metrics around a `BrokerCore`.

One greenlet changes the role; links, ticks and turns of the loop only use what is open.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import gevent
from gevent.event import Event
from prometheus_client import CollectorRegistry

from common.address import Address, engine_address
from common.cluster.coordination import Coordination
from common.cluster.opening import open_coordination
from common.config.applying import process_name
from common.config.health import ConfigMetrics, config_health
from common.net.places_metrics import PlacesMetrics
from common.ops import OpsServer, announce_ready, start_ops
from engine.broker.core import TICK_MS, BrokerCore
from engine.broker.group_ops import GroupOps
from engine.broker.host import lending_slaves
from engine.broker.incarnations import Incarnations, KeptFile, boot_id
from engine.broker.master_link import MasterLink
from engine.broker.master_session import FollowingBroker
from engine.broker.metrics import BrokerMetrics
from engine.broker.piece_lender import PieceLender
from engine.broker.repair_work import RepairWork
from engine.broker.standby import Standby
from engine.composition import Composition, finish, settle_process
from engine.env.background import PacedThread
from engine.log import Log
from engine.log.write.failed_sync import is_marked
from engine.node import Node
from engine.ops.confirmed_times import SAMPLE_MS, ConfirmedTimes
from engine.ops.output_hold import OutputHold
from engine.ops.roles import REPLICA
from engine.options import MIB
from engine.server.native import call_each_turn, reference
from engine.server.series_metrics import SeriesMetrics
from engine.server.server import LinkServer

log = logging.getLogger("penstock.engine")


class BrokerProcess:
    """One process, the `BrokerHost` of its broker: `run()` serves until it has to end."""

    def __init__(self, parts: Composition) -> None:
        options = parts.options
        self._parts, self._options, self.env, self.directory = parts, options, parts.env, options.data
        data = Path(options.data)
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        incarnations = Incarnations(
            KeptFile(data / "incarnation"), boot_id(), parts.env.random_bytes,
            sync_failed=is_marked(parts.env, f"{options.data}/log"),
        )  # fmt: skip
        self._coordination: Coordination = open_coordination(options.config)
        self._changed = Event()
        self._confirmed_times = ConfirmedTimes()
        self._core = BrokerCore(
            options.broker, options.broker_group, self, incarnations, self._coordination, keys=parts.keys,
            can_begin=options.first, id_window_mib=options.id_window_mib,
        )  # fmt: skip

    # -- as the host of the broker

    @property
    def address(self) -> str:
        return str(self._options.address or Address(self._options.listen.host, self._server.port))

    def role_is_due(self, delay_s: float = 0.0) -> None:
        if delay_s:
            gevent.get_hub().loop.timer(delay_s).start(self._changed.set)
        else:
            self._changed.set()

    def open_log(self, *, scans_all: bool) -> Log:
        return self._parts.open_log(scans_all=scans_all)

    def start_threads(self, store: Log) -> Sequence[PacedThread]:
        core, key = self._core, self._parts.keys.of(REPLICA)
        work = RepairWork(store, core.name, key, core.repairs, core.repair_peers, core.reopen)
        if self._options.slave_read_mib:
            slaves = partial(lending_slaves, core)
            store.cold.borrow_from(PieceLender(core.name, key, slaves, self._options.slave_read_mib * MIB))
        return [*self._parts.start_threads(store), PacedThread("repairs", work.steps())]

    def make_node(self, store: Log, *, replicas: GroupOps, output_hold: OutputHold) -> Node:
        return self._parts.make_node(
            store,
            self._server.facts,
            replicas=replicas,
            output_hold=output_hold,
            confirmed_times=self._confirmed_times,
        )

    def serve(self, node: Node) -> None:
        self._server.use(node)
        self._parts.loop.start(node)

    def stop_node(self) -> None:
        self._parts.loop.stop()

    def stand_by(self, standby: Standby, *, has_log: bool) -> None:
        if has_log:
            self._server.use(standby)
            self._parts.loop.start(standby)
        else:
            self._parts.loop.stop()
            self._server.use(standby, reference)

    def turn_away(self, standby: Standby) -> None:
        self._server.greet_with(standby)

    def end_clients(self) -> None:
        self._server.end_clients()

    def in_loop(self, call: Callable[[], None]) -> None:
        self._parts.loop.in_loop(call)

    def follow(self, broker: FollowingBroker, address: str) -> MasterLink:
        key, now_ms = self._parts.keys.of(REPLICA), self.env.clock.monotonic_ms
        return MasterLink(broker, self._options.broker, engine_address(address), key, now_ms)

    def _sample(self) -> None:
        """Note how far the log is confirmed now, for operators who look at one message."""
        life, newest = self._core.life, self._core.known.newest
        if life is None or life.lead_at is None or newest is None:
            self._confirmed_times.clear()
            return
        in_sync = tuple(sorted(newest[1].in_sync))
        self._confirmed_times.note(self.env.now_ms(), life.appender.end_position, life.hold.confirmed, in_sync)

    def _change_roles(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            self._core.change_role()

    # -- the process

    def run(self) -> None:
        """Serve until the process has to end, then finish the accepted work."""
        parts, options = self._parts, self._options
        self._server = LinkServer(self._core.standby, *options.listen, socket_file=options.socket_file, form=reference)
        self._core.start()
        loop = gevent.get_hub().loop
        stop_turns, ticks = call_each_turn(self._core.turns.run), loop.timer(TICK_MS / 1000, TICK_MS / 1000)
        ticks.start(self._core.tick)
        samples = loop.timer(SAMPLE_MS / 1000, SAMPLE_MS / 1000)
        samples.start(self._sample)
        changing = gevent.spawn(self._change_roles)
        ops = self._start_ops()
        parts.follower.start(process_name("engine", options.listen[0], self._server.port), ops.port)
        self._coordination.watch(options.broker_group, self._core.known.look)
        self._core.register()
        settle_process()
        announce_ready(options.ready_fd, {"host": options.listen[0], "port": self._server.port, "ops_port": ops.port})
        log.info(
            "data=%s port=%d broker=%s: waiting for the record of its group",
            options.data,
            self._server.port,
            options.broker,
        )
        parts.asked.wait()
        changing.kill()
        self._end_orderly()
        stop_turns()
        ticks.stop()
        samples.stop()
        parts.follower.close()
        ops.stop()

    def _end_orderly(self) -> None:
        core = self._core
        life = core.life
        if life is not None and life.node is not None:
            finish(life.node, self._server, self._parts.loop)
        else:
            self._server.stop_accepting()
        core.unfollow()
        self._server.close()
        self._coordination.unregister(self._options.broker_group, self._options.broker)
        self._coordination.close()
        core.life = None
        if life is not None:
            life.node = None  # it has ended
            life.close()
        core.incarnations.end()

    def _start_ops(self) -> OpsServer:
        registry = CollectorRegistry()
        registry.register(ConfigMetrics(lambda: self._parts.follower.view))
        registry.register(PlacesMetrics(self._server.places))
        registry.register(
            BrokerMetrics(
                lambda: self._core.life,
                self._server,
                self._parts.scrub,
                self._core.repairs,
                self._core.standby,
                self._core.ops.pieces,
                lambda: len(self.env.list(f"{self.directory}/diverged")),
                self.env.clock.monotonic_ms,
            )
        )
        series = SeriesMetrics(self._node, self._parts.series_bounds)
        return start_ops(self._options.ops[0], self._options.ops[1], registry, self._health, series=series)

    def _node(self) -> Node | None:
        """The node, while this broker leads."""
        return self._core.life.node if self._core.life is not None else None

    def _health(self) -> dict[str, bool | str]:
        life = self._core.life
        if life is None:
            state: bool | str = "no log yet: no master is reached"
        elif life.lead_at is not None:
            state = True if life.node is not None else "its log is not confirmed yet"
        else:
            state = True if life.group.follows else "follows no master"
        return {
            "log": life is not None,
            "replication": state,
            "configuration": config_health(self._parts.follower.view),
            "connections": self._server.places.health(),
        }
