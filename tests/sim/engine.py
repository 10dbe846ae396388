"""One simulated engine: a node with its log and its machine, and the process that a supervisor restarts."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.config import LogConfig
from engine.delivery.policy import DEFAULTS
from engine.env.simulated import PowerCut, ProcessEnded
from engine.errors import EngineError
from engine.log import open_log
from engine.log.segment.recovery_scan import SegmentDamage
from engine.node import Node, NodeConfig, NodeHost
from engine.ops.output_hold import OutputHold
from engine.ops.roles import LinkKeys
from tests.sim.link import ADMIN_SECRET, KEY, Link, Owner
from tests.sim.machine import EndAt, Machine
from tests.sim.sent import Broken
from tests.sim.turn import Turn

if TYPE_CHECKING:
    from tests.sim.config import SimulatedConfig  # it needs gevent
    from tests.sim.world import World

log = logging.getLogger("penstock.sim")
DIRECTORY = "/engine"
UNREAD = "cannot be read"
CONFIRM_MS_MAX = 50
RESTART_MS = 500
"""Pause of the supervisor before it starts an ended process again."""


class Engine:
    """One node with its machine. `incarnation` counts starts; events of earlier ones are ignored.

    Args:
        node: settings of the node.
        config: the configuration that the engine follows; None: none.
        threads: whether syncs and background tasks take time; else they run in the caller.
        staged: whether APPEND frames of one turn are written together, as the native server does.
        restarts: whether a supervisor starts an ended process again.
        holds: whether links wait until what they show is on the disk, as those of a master wait for its slaves.

    Attributes:
        node: None while the engine is down.
        deaths: reasons of the ends of the process.
        wall_max_ms: the latest time that the wall clock has shown.
        on_crash: called with True at a power cut, False when the process alone ended.
        on_stop: called after an orderly stop that could write the progress.
        on_start: called after a start.
        on_unread: called at a start with the bytes that it reports as lost, because the disk cannot read them.
        before_crash: called before each end of the process.
    """

    def __init__(
        self, world: "World", name: str, log: LogConfig, *, node: dict[str, int] | None = None,
        config: "SimulatedConfig | None" = None, threads: bool = False, staged: bool = False, restarts: bool = False,
        holds: bool = False,
    ) -> None:  # fmt: skip
        self.world, self.name = world, name
        self.env = Machine(world, name, self.guarded, threads)
        self.config = config
        self.node: Node | None = None
        self.incarnation = 0
        self.deaths: list[str] = []
        self.failed_start = ""
        self.on_crash: Callable[[bool], None] = lambda power_cut: None
        self.on_stop: Callable[[], None] = lambda: None
        self.on_start: Callable[[], None] = lambda: None
        self.on_unread: Callable[[list[bytes]], None] = lambda lost: None
        self.before_crash: Callable[[], None] = lambda: None
        self.turn: Turn | None = None
        self.links: list[Link] = []
        self._staged, self._restarts, self._holds = staged, restarts, holds
        self._log = log
        self._settings = NodeConfig(
            LinkKeys(KEY, ADMIN_SECRET), **{"tick_ms": 1000, "progress_ms": 5000, **(node or {})}
        )
        self._woken_ms = -1
        self._random = world.random_of(f"engine-{name}")

    # -- the process

    def start(self) -> None:
        """Recover from the disk and serve. Raises what ends the start."""
        assert self.node is None
        self.incarnation += 1
        env = self.env
        if self.config is not None:
            self.config.begin()
        store = open_log(
            env, DIRECTORY, self._log, retention_policy=self.config and self.config.retention,
            notify=lambda: self._soon(lambda node: node.turn_end()),
        )  # fmt: skip
        host = NodeHost(
            env.clock, env.random_bytes, env.random_fraction,
            in_loop=lambda call: self._soon(lambda node: call()), wake_at=self._wake_at, die=env.die,
            stop=lambda: self.world.after(0, self.stop), facts=dict,
        )  # fmt: skip
        self.node = Node(
            store, self._settings, host, policies=self.config.policies if self.config else DEFAULTS,
            output_hold=OutputHold(lambda: store.end_position) if self._holds else None,
        )  # fmt: skip
        self.turn = Turn(self.node) if self._staged else None
        self.failed_start = ""
        self.world.note(self.name, "start", store.end_position)
        if lost := [self._bytes_of(each) for each in store.damage if UNREAD in each.reason]:
            self.on_unread(lost)
        self.on_start()

    def _bytes_of(self, damage: SegmentDamage) -> bytes:
        at = damage.position - int(damage.path[-24:-4])
        return bytes(self.env.files[damage.path].seen[at : at + damage.bytes_lost])

    def stop(self) -> None:
        """Stop cleanly: all requests are answered, all data is written and synced."""
        node = self.node
        if node is None:
            return
        self.before_crash()
        node.release_waiting()
        self._cut_links()
        try:
            node.close()
        except (OSError, EngineError) as error:
            raise Broken(f"an orderly stop fails: {error}") from error
        is_written = not node.delivery.has_progress
        node.store.close()
        self.node = self.turn = None
        self.env.end_process()
        self.world.note(self.name, "stop", is_written)
        if is_written:
            self.on_stop()
        else:
            self.on_crash(False)

    def crash(self, power_cut: bool, reason: str = "") -> None:
        """Kill the process, or cut the power: then unsynced data is lost or torn."""
        self.world.note(self.name, "crash", power_cut, reason)
        self.before_crash()
        self.node = self.turn = None
        self._cut_links()
        if power_cut:
            self.env.crash(self.world.random_of(f"crash-{self.name}-{self.incarnation}-{self.world.now_ms}"))
        else:
            self.env.end_process()
        self.on_crash(power_cut)
        if self._restarts:
            self.world.after(RESTART_MS, self.restart)

    def restart(self) -> None:
        """Start the ended process; when it cannot start, try again after a while."""
        if self.node is not None:
            return
        try:
            self.start()
        except (OSError, EngineError, ProcessEnded, EndAt) as error:
            self._start_failed(error, False)
        except PowerCut as error:
            self._start_failed(error, True)

    def _start_failed(self, error: BaseException, power_cut: bool) -> None:
        self.failed_start = f"{type(error).__name__}: {error}"
        self.world.note(self.name, "cannot start", self.failed_start)
        self.node = self.turn = None
        if power_cut:
            self.env.crash(self.world.random_of(f"crash-{self.name}-{self.incarnation}-{self.world.now_ms}"))
        else:
            self.env.end_process()
        self.on_crash(power_cut)
        self.world.after(2 * RESTART_MS, self.restart)

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a part of the process, which may end it."""
        try:
            call()
        except ProcessEnded as error:
            self.deaths.append(str(error).splitlines()[0])
            self.crash(False, str(error))
        except EndAt as error:
            self.crash(False, f"killed in {error}")
        except PowerCut as error:
            self.crash(True, str(error))
        except Broken:
            raise
        except Exception:
            # The server's loop logs it and turns on. The run fails by the log, unless an injected fault explains it.
            log.exception("the loop caught an exception")

    # -- links

    def connect(self, owner: Owner) -> Link | None:
        """Make a link, which authenticates automatically; None while the engine is down."""
        if self.node is None:
            return None
        link = Link(self, owner)
        self.links.append(link)
        return link

    def deliver(self, link: Link, op: int, request_id: int, payload: bytes) -> None:
        """A frame has arrived from the link's owner."""
        if self.node is not None and not link.closed:
            self.guarded(lambda: self._serve(link, op, request_id, payload))

    def _serve(self, link: Link, op: int, request_id: int, payload: bytes) -> None:
        assert self.node is not None
        if self.turn is not None and link.peer_state.authenticated:
            if self.turn.take(link, op, request_id, payload):
                self._soon(lambda node: self.turn.end())  # type: ignore[union-attr]
            return
        self.node.on_request(link, op, request_id, payload)
        self.node.turn_end()

    def forget(self, link: Link) -> None:
        """The link is closed."""
        if link in self.links:
            self.links.remove(link)
            if self.node is not None:
                self.guarded(lambda: self.node.on_closed(link))  # type: ignore[union-attr]

    def confirm_later(self) -> None:
        """Confirm, after a while, what the log has now, once it is on the disk."""
        assert self.node is not None
        store, end, incarnation = self.node.store, self.node.store.end_position, self.incarnation

        def confirm() -> None:
            if self.node is not None and self.node.output_hold is not None and self.incarnation == incarnation:
                self.node.output_hold.confirm(end)

        def wait() -> None:
            if self.node is not None and self.incarnation == incarnation:
                self.guarded(lambda: store.when_durable(end, confirm))

        self.world.after(self._random.randint(0, CONFIRM_MS_MAX), wait)

    def _cut_links(self) -> None:
        for link in list(self.links):
            link.close("the engine has ended")

    # -- time

    def _soon(self, call: Callable[[Node], None]) -> None:
        incarnation = self.incarnation

        def run() -> None:
            if self.node is not None and self.incarnation == incarnation:
                self.guarded(lambda: call(self.node))  # type: ignore[arg-type]

        self.world.after(0, run)

    def _wake_at(self, due_ms: int) -> None:
        self._woken_ms = due_ms
        incarnation = self.incarnation

        def tick() -> None:
            if self.node is not None and self.incarnation == incarnation and self._woken_ms == due_ms:
                self.guarded(self._tick)

        self.world.at(self.env.world_ms(due_ms), tick)

    def _tick(self) -> None:
        assert self.node is not None
        next_ms = self.node.tick(self.env.clock.monotonic_ms())
        if next_ms is not None and self.node is not None:
            self._wake_at(next_ms)
