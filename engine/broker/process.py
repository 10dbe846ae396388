"""A broker of a group with replicas: adopts records of its group, and is its master or a slave. 0031-switch-over.md.

One greenlet changes the role; links, ticks and turns of the loop only use what is open. A master that is replaced opens
its log again, as at a start: another master's log goes on where its own may have to be cut.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import gevent
from gevent.event import Event
from prometheus_client import CollectorRegistry

from common.address import host_and_port
from common.cluster.coordination import Coordination, Registration
from common.cluster.group_record import NO_LOG, GroupRecord
from common.cluster.opening import open_coordination
from common.cluster.reports import BrokerReport
from common.config.applying import process_name
from common.config.errors import ConfigError
from common.config.health import ConfigMetrics, config_health
from common.limited_log import LimitedLog
from common.ops import OpsServer, announce_ready, start_ops
from engine.broker.group_ops import GroupOps
from engine.broker.incarnations import Incarnations, boot_id
from engine.broker.life import BrokerLife
from engine.broker.master_link import MasterLink
from engine.broker.metrics import BrokerMetrics
from engine.broker.standby import Standby
from engine.composition import Composition, finish, settle_process
from engine.errors import DiskFullError
from engine.log.format import parse_segment_header
from engine.log.segment.segment import create_segment
from engine.log.upkeep.truncation import TruncationOrder, order_truncation
from engine.log.write.failed_sync import is_marked
from engine.ops.stored import StoredWaits
from engine.replication.broker import GroupBroker, UnsoundLogError
from engine.replication.frames import Follow
from engine.server.native import reference
from engine.server.server import LinkServer

log = logging.getLogger("penstock.engine")
limited = LimitedLog(log)

TICK_S = 0.02
SYNC_MS = 200
"""Longest time for which a master leaves bytes unsynced: the record's floor, and slaves that join, wait for it."""
DELETIONS_MS = 1000
"""Time between two looks of a slave for segments that its master has deleted."""
CONTACT_S_MAX = 1.5
"""A master without slaves confirms nothing when its last contact with the coordination is older."""


class BrokerProcess:
    """One process: `run()` serves until it has to end."""

    def __init__(self, parts: Composition) -> None:
        options = parts.options
        self._parts, self._options = parts, options
        self.name, self._group_name = options.broker, options.broker_group
        self._clock = parts.env.clock
        data = Path(options.data)
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._incarnations = Incarnations(
            data / "incarnation", boot_id(), parts.env.random_bytes,
            sync_failed=is_marked(parts.env, f"{options.data}/log"),
        )  # fmt: skip
        self._coordination: Coordination = open_coordination(options.config)
        self._life: BrokerLife | None = None
        self._link: MasterLink | None = None
        self._newest: tuple[int, GroupRecord] | None = None
        self._adopted = 0
        self._addresses: dict[str, str] = {}
        self._end = self._durable = self._synced_ms = self._deletions_ms = 0
        self._has_contact = False
        self._changed = Event()
        self.ops = GroupOps(self, self._clock.monotonic_ms)
        self._standby = Standby(
            parts.keys, self._clock, parts.env.random_bytes, self.identity, self.ops.handlers(), self._refusal,
            self.ops.on_closed,
        )  # fmt: skip

    # -- for operations and links

    @property
    def group(self) -> GroupBroker | None:
        """This broker under its record; None: it has no log yet."""
        return None if self._life is None else self._life.group

    @property
    def waits_everywhere(self) -> bool:
        """Whether an answer waits for the disks of all members."""
        return self._life is not None and self._life.waits_everywhere

    def sync_soon(self, on_synced: Callable[[], None]) -> None:
        """As a slave, sync the log."""
        if self._life is not None:
            self._life.store.when_synced(self._life.store.end_position, on_synced)

    def report(self) -> BrokerReport:
        """For the controllers."""
        if self._life is not None:
            return self._life.group.report(self._clock.monotonic_ms())
        numbers = self._incarnations
        continues = numbers.continues | {numbers.present}
        return BrokerReport(numbers.present, 0, "", NO_LOG, continues=continues, can_begin=self._options.first)

    def learn(self, version: int, record: GroupRecord) -> None:
        """Adopt the record soon if it is newer than all that are known."""
        if self._newest is None or version > self._newest[0]:
            self._newest = version, record
            self._changed.set()

    def identity(self) -> dict[str, object]:
        """Fields of HELLO's answer while this broker does not serve clients."""
        life = self._life
        log_id = "" if life is None else life.store.log_id.hex()
        return {"log_id": log_id, "broker_group": self._group_name, **self.replica_identity(leads=False)}

    def replica_identity(self, *, leads: bool = True) -> dict[str, object]:
        """Fields of HELLO about the group."""
        group = self.group
        master, term = ("", 0) if group is None else (group.master, group.epoch)
        return {"leads": leads, "broker": self.name, "master": master, "term": term}

    def told(self) -> None:
        """Tell the controllers what has changed."""
        self.ops.report_changes()

    def confirm(self) -> None:
        """Let out what is confirmed. A master without slaves needs contact with the coordination for it."""
        life = self._life
        if life is None or not life.group.is_master or (life.group.is_alone and not self._has_contact):
            return
        life.confirm()
        if life.node is None and life.can_serve:
            self._changed.set()

    def first_follow(self) -> Follow:
        """The FOLLOW of a broker without a log."""
        return Follow(self._newest[1].epoch if self._newest else 0, self._incarnations.present, 0)

    def make_log(self, header: bytes) -> None:
        """Make a log that begins with a segment of this header, and open it."""
        if self._life is not None:
            return
        parts, directory = self._parts, f"{self._options.data}/log"
        parts.env.make_directory(directory)
        parsed = parse_segment_header(header, directory)
        if parsed is None:
            raise ConnectionError("the header of the master's first segment does not verify")
        create_segment(parts.env, directory, parsed).close()
        self._open()
        log.info("broker=%s: begins with a copy of log %s", self.name, parsed.log_id.hex())
        self._changed.set()

    def cut_log(self, position: int) -> None:
        """Cut the log at a position and open it again, as a process that continues nothing. Blocks."""
        life = self._life
        assert life is not None
        order = TruncationOrder(life.store.log_id, life.store.epoch, position)
        log.warning("broker=%s: the log is cut from %d to %d", self.name, life.store.end_position, position)
        self._close_life()
        self._incarnations.renew()
        order_truncation(self._parts.env, self._options.data, order)
        self._open()
        self._register()
        self._changed.set()

    def _refusal(self) -> str:
        group = self.group
        master = "" if group is None else group.master
        return f'broker "{self.name}" is not the master of its group' + (f': broker "{master}" is' if master else "")

    # -- the role

    def _open(self) -> None:
        numbers = self._incarnations
        self._life = BrokerLife(self._parts, self.name, numbers.present, numbers.continues)
        self._adopted = 0
        self._end = self._durable = 0
        self._standby.store, self._standby.stored = self._life.store, StoredWaits(self._life.store)
        self._server.use(self._standby)

    def _close_life(self) -> None:
        """Close the log, and all links to clients and slaves."""
        life, self._life = self._life, None
        self._unfollow()
        self.ops.end_links()
        self._server.use(self._standby, reference)
        if life is not None:
            life.close()

    def _unfollow(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _change_roles(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            try:
                self._change_role()
            except DiskFullError as error:
                limited.error("broker=%s: %s", self.name, error)
                gevent.get_hub().loop.timer(1.0).start(self._changed.set)
            except Exception as error:
                # The log or the links are in an unknown state: a start makes them anew.
                log.exception("broker=%s: the change of its role failed", self.name)
                self._parts.env.die(f"the change of the role failed: {error}")
            self.told()

    def _change_role(self) -> None:
        if self._newest is not None and self._newest[0] > self._adopted:
            self._adopt(*self._newest)
        life = self._life
        if life is not None and life.node is None and life.can_serve:
            life.serve(self._server, self.ops)
            log.info("broker=%s epoch=%d: serves as the master", self.name, life.group.epoch)
        self._follow_master()

    def _adopt(self, version: int, record: GroupRecord) -> None:
        leads = record.master == self.name and record.in_sync[self.name] == self._incarnations.present
        life = self._life
        if life is None:
            if not leads:
                return  # its master gives this broker the log first
            self._open()
        elif not leads and life.lead_at is not None:
            life.store.refusal.follow(self._refusal())  # what is not confirmed would only have to be cut off
            self._close_life()
            self._open()
        life = self._life
        assert life is not None
        led = life.lead_at is not None
        try:
            is_new = life.group.adopt(version, record, self._clock.monotonic_ms())
        except UnsoundLogError as error:
            self.cut_log(error.position)
            return
        self._adopted = version
        life.adopted()
        if is_new:
            log.info("broker=%s version=%d epoch=%d: %s", self.name, version, record.epoch, record.reason)
            self._unfollow()
            if leads and not led:
                life.begin_to_lead()
            self.ops.end_links()
        self.confirm()

    def _follow_master(self) -> None:
        """Have a link to the master of the newest record, where it is now."""
        if self._newest is None:
            return
        record = self._newest[1]
        text = self._addresses.get(record.master)
        life = self._life
        if record.master == self.name or text is None or (life is not None and life.lead_at is not None):
            self._unfollow()
            return
        address = host_and_port(text)
        if self._link is not None and self._link.address != address:
            self._unfollow()
        if self._link is None:
            self._link = MasterLink(self, self.name, address, self._parts.keys.cluster, self._clock.monotonic_ms)

    # -- time

    def _turn(self) -> None:
        """At the end of each turn of the loop: ship what it wrote."""
        life = self._life
        if life is None or life.lead_at is None:
            return
        end, durable = life.store.end_position, life.store.durable_position
        if (end, durable) == (self._end, self._durable):
            return
        self._end, self._durable = end, durable
        life.group.written()
        life.group.synced()
        self.confirm()
        self.ops.send_frames()

    def _tick(self) -> None:
        life, now_ms = self._life, self._clock.monotonic_ms()
        self._has_contact = self._coordination.contact_age_s() <= CONTACT_S_MAX
        self._standby.check_deadlines()
        if life is not None and life.lead_at is not None:
            if life.store.end_position > life.store.durable_position and now_ms >= self._synced_ms + SYNC_MS:
                self._synced_ms = now_ms
                life.sync()
            self.confirm()
            self.ops.send_frames()
        elif life is not None:
            if life.group.is_sync_due(now_ms):
                life.sync()
            if now_ms >= self._deletions_ms + DELETIONS_MS:
                self._deletions_ms = now_ms
                life.follow_deletions()
        self.ops.report_changes()

    # -- the coordination

    def _look(self, group: str) -> None:
        """Read the record and the addresses. In the coordination's thread, which may block."""
        try:
            found = self._coordination.record(group)
            brokers = self._coordination.brokers(group)
        except ConfigError as error:
            limited.warning("broker_group=%s: %s", group, error)
            return
        self._addresses = {name: each.address for name, each in brokers.items()}
        if found is not None:
            self.learn(found.version, found.record)
        self._changed.set()

    def _register(self) -> None:
        host, port = self._options.listen[0], self._server.port
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._coordination.register(self._group_name, self.name, Registration(self._incarnations.present, address))

    # -- the process

    def run(self) -> None:
        """Serve until the process has to end, then finish the accepted work."""
        parts, options = self._parts, self._options
        self._server = LinkServer(self._standby, *options.listen, socket_file=options.socket_file, form=reference)
        if Path(options.data, "log").is_dir() and any(Path(options.data, "log").glob("*.seg")):
            self._open()
        loop = gevent.get_hub().loop
        turns, ticks = loop.prepare(), loop.timer(TICK_S, TICK_S)
        turns.start(self._turn)
        ticks.start(self._tick)
        changing = gevent.spawn(self._change_roles)
        ops = self._start_ops()
        parts.follower.start(process_name("engine", options.listen[0], self._server.port))
        self._coordination.watch(self._group_name, self._look)
        self._register()
        settle_process()
        announce_ready(options.ready_fd, {"host": options.listen[0], "port": self._server.port, "ops_port": ops.port})
        log.info(
            "data=%s port=%d broker=%s: waiting for the record of its group", options.data, self._server.port, self.name
        )
        parts.asked.wait()
        changing.kill()
        self._end_orderly()
        turns.stop()
        ticks.stop()
        parts.follower.close()
        ops.stop()

    def _end_orderly(self) -> None:
        life = self._life
        if life is not None and life.node is not None:
            finish(life.node, self._server, self._parts.loop)
        else:
            self._server.stop_accepting()
        self._unfollow()
        self._server.close()
        self._coordination.unregister(self._group_name, self.name)
        self._coordination.close()
        self._life = None
        if life is not None:
            life.node = None  # it has ended
            life.close()
        self._incarnations.end()

    def _start_ops(self) -> OpsServer:
        registry = CollectorRegistry()
        registry.register(ConfigMetrics(lambda: self._parts.follower.view))
        registry.register(BrokerMetrics(lambda: self._life, self._server, self._parts.scrub, self._clock.monotonic_ms))
        return start_ops(self._options.ops[0], self._options.ops[1], registry, self._health)

    def _health(self) -> dict[str, bool | str]:
        life = self._life
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
        }
