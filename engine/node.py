"""One engine without its sockets: log, delivery, timers and replies, put together.

Nothing here imports gevent or opens a socket or a file, and time comes only from the clock that is passed in. A server,
or a simulation with several nodes in one process, passes peers and requests to a node. It also ends the turns of the
node, and calls `tick()` at the times that the node asks for.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from common.believed_time import BelievedTime
from common.limited_log import LimitedLog
from engine.delivery.creations import NO_LIMITS, CreationLimits, Creations
from engine.delivery.delivery import Delivery
from engine.delivery.group_starts import GroupStarts
from engine.delivery.lost_ends import raise_lost_ends
from engine.delivery.lost_turns import LostTurns
from engine.delivery.policy import DEFAULTS, Policies
from engine.delivery.queue_ownership import QueueOwnership
from engine.delivery.receipt import receipt_key
from engine.delivery.settings import DeliverySettings
from engine.delivery.topic_expiry import FamilyTopics, NoFamilyTopics, TopicExpiry
from engine.delivery.upkeep import GroupUpkeep
from engine.env.native import NodeClock
from engine.errors import EngineError, PartlyWrittenError, TimersReturnedError
from engine.link import layout
from engine.link.errors import LinkError
from engine.log import Log
from engine.ops.admin import Admin
from engine.ops.append import Append
from engine.ops.backlog import BacklogBreakers
from engine.ops.claims import Claims
from engine.ops.confirmed_times import ConfirmedTimes
from engine.ops.copied import CopiedOps
from engine.ops.errors import RequestError
from engine.ops.handshake import Handshake
from engine.ops.lane_links import LaneLinks
from engine.ops.lookup import LookUps
from engine.ops.output_hold import OutputHold
from engine.ops.peer import Peer, PeerState
from engine.ops.pull import PullMessages
from engine.ops.quota import QuotaLending
from engine.ops.read import PositionReads
from engine.ops.reply import ReplyOps
from engine.ops.resend import Resend
from engine.ops.roles import LinkKeys
from engine.ops.stored import StoredWaits
from engine.ops.timer import TimerOps
from engine.ops.topic import CreateTopics
from engine.ops.turned_away import turned_away
from engine.ops.waiting import WaitingRequests
from engine.ops.window import ReplyWindows
from engine.replies.exchange import Exchange
from engine.schedule import Schedule
from engine.timers.timers import Timers

log = logging.getLogger("penstock.engine")
limited = LimitedLog(log)
Handler = Callable[[Peer, int, bytes], None]
EPOCH_BYTES = 8


class ReplicaOps(Protocol):
    """Work of a master's node for slaves and controllers; see `engine.broker.group_ops`."""

    def handlers(self) -> dict[int, Handler]:
        """By operation."""

    def identity(self) -> dict[str, object]:
        """Further fields of HELLO's answer."""

    def on_closed(self, peer: Peer) -> None:
        """A link is closed."""


@dataclass(frozen=True)
class NodeConfig:
    """Settings of one node.

    Attributes:
        keys: the secrets that peers prove to know, and the engine to them.
        broker_group: the group of this engine, as the configuration names it.
        expire_hours: hours of running without a use after which a group without a definition, or a topic of a family, is
            forgotten; 0: never.
        progress_ms: least time between two progress records of one queue. Less writes more, more redelivers more after
            a crash.
        tick_ms: interval at which deadlines of waiting requests and leases are checked. Less costs processor time, more
            delays them.
        authenticate_ms: time in which a new peer has to authenticate.
        progress_cursors: cursors whose progress is written at once: about a millisecond. More would delay requests.
        progress_pause_ms: pause between two such writes.
        far_bytes: distance from the end of the log from which on slaves serve reads by position; 0: they serve none.
    """

    keys: LinkKeys
    broker_group: str = "main"
    expire_hours: int = 0
    progress_ms: int = 200
    tick_ms: int = 20
    authenticate_ms: int = 10_000
    progress_cursors: int = 256
    progress_pause_ms: int = 2
    far_bytes: int = 0


@dataclass(frozen=True)
class NodeHost:
    """Services of the process that runs a node.

    Attributes:
        clock: wall time and monotonic time.
        random_bytes: bytes fit for keys and nonces.
        random_fraction: a number from 0 to 1, for jitter.
        in_loop: runs a function in the loop's thread; callable from every thread.
        wake_at: `Node.tick()` has to be called at this monotonic time (milliseconds) at the latest.
        die: ends the process with a reason; only a restart can help.
        stop: called when an operator requests an orderly end of the process.
        facts: further figures for the verb `status`.
    """

    clock: NodeClock
    random_bytes: Callable[[int], bytes]
    random_fraction: Callable[[], float]
    in_loop: Callable[[Callable[[], None]], None]
    wake_at: Callable[[int], None]
    die: Callable[[str], None]
    stop: Callable[[], None]
    facts: Callable[[], dict]


class Node:
    """Serves one open log. All methods belong to the loop's thread.

    Args:
        store: the open log; the caller closes it after the node.
        policies: the configuration's policy of each group.
        ownership: the queues of this engine.
        settings: limits of delivery. limits: how many groups and topics each application may create.
        families: which topics families define; None: no topic is forgotten.
        replicas: the operations of slaves and controllers, in a group with replicas.
        output_hold: holds the output of clients' links until what it shows is confirmed; None: nothing is held.
        confirmed_times: tells operators when positions were confirmed; None: the node keeps no such times.

    Attributes:
        output_hold: as given; a process may set it until it accepts connections.
        peers: open connections. handshake: of those that are not authenticated.
        stored: what answers to appends wait for. append: totals of APPEND, when frames come through `on_request()`.
    """

    def __init__(
        self, store: Log, config: NodeConfig, host: NodeHost, *, policies: Policies = DEFAULTS,
        ownership: QueueOwnership | None = None, settings: DeliverySettings | None = None,
        limits: CreationLimits = NO_LIMITS, families: FamilyTopics | None = None, replicas: ReplicaOps | None = None,
        output_hold: OutputHold | None = None, confirmed_times: ConfirmedTimes | None = None,
    ) -> None:  # fmt: skip
        self.store, self.clock, self._config, self._die = store, host.clock, config, host.die
        self._replicas, self.output_hold, self._confirmed_times = replicas, output_hold, confirmed_times
        believed = BelievedTime(host.clock.wall_ms, host.clock.monotonic_ms, name="requests")
        self.exchange = Exchange(believed.checked_ms, host.clock.monotonic_ms, lambda: store.log_time.newest_ms)
        raise_lost_ends(store)
        policies = self.starts = GroupStarts(policies, store, host.clock.wall_ms)
        fitting = (settings or DeliverySettings()).fitting(store.for_timers.batch_bytes_max)
        self.delivery = Delivery(
            store, receipt_key(store, host.random_bytes), host.clock.wall_ms, fitting, policies=policies,
            random=host.random_fraction, ownership=ownership, requests=self.exchange.requests, now_ns=host.clock.monotonic_ns,
            creations=Creations(store, limits),
        )  # fmt: skip
        self.timers = Timers(store, host.clock.wall_ms, self.delivery.ownership.nearest)
        now_ms = host.clock.monotonic_ms()
        self.delivery.on_time(now_ms)
        # Dicts keep the order of arrival, which sets of objects do not: a simulation has to repeat itself.
        self.peers: dict[Peer, None] = {}
        self._strangers: dict[Peer, None] = {}
        self._lanes, self.schedule = LaneLinks(), Schedule(host.wake_at)
        self._make_upkeep(policies, families or NoFamilyTopics())
        self._deadlines, self._only_reads_wait = self.schedule.add("deadlines", self._check_deadlines), False
        self._groups = self.schedule.add("groups", self.groups.step)
        self._topics = self.schedule.add("topics", self.topics.step)
        self._firing = self.schedule.add("timers", self._fire_timers)
        self._progress = self.schedule.add("progress", self._write_progress)
        self._retention = self.schedule.add("retention", self._retain)
        self.waiting, self._epoch = WaitingRequests(self._watch_deadlines), host.random_bytes(EPOCH_BYTES).hex()
        self.handshake = Handshake(config.keys, self._identity, host.random_bytes, self._on_authenticated)
        self.stored, self.windows = StoredWaits(store), ReplyWindows(self.delivery, host.clock)
        self.append = Append(store, host.clock, self.turn_end, self.stored)
        self.pulls = PullMessages(self.delivery, host.clock, self.waiting)
        uses = self.delivery.creations.topic_uses
        self.reads = PositionReads(store, host.clock, self.waiting, uses, config.far_bytes)
        self.backlog_breakers = BacklogBreakers(store, self.delivery, host.clock)
        self.look_ups = LookUps(store, self.waiting, host.in_loop)
        self._handlers = self._all = self._all_handlers(host)
        self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        """Plan the work that comes without a request."""
        self.schedule.at(self._progress, now_ms + self._config.progress_ms)
        for work in (self._retention, self._groups, *([self._topics] if self._config.expire_hours else [])):
            self.schedule.at(work, now_ms)
        self._watch_timers()

    def _make_upkeep(self, policies: Policies, families: FamilyTopics) -> None:
        """Make the parts that forget unused groups and topics."""
        delivery, hours, creations = self.delivery, self._config.expire_hours, self.delivery.creations
        turns = LostTurns(self.store, delivery.groups, delivery.on_woken)
        self.groups = GroupUpkeep(self.store, policies, delivery.groups, delivery.unload, creations, hours, turns)
        self.topics = TopicExpiry(
            self.store, policies, families, delivery.topic_changes, delivery.creations, self.timers,
            self.clock.wall_ms, lambda: self.groups.hours, hours,
        )  # fmt: skip

    def _all_handlers(self, host: NodeHost) -> dict[int, Handler]:
        store, clock, uses, times = self.store, host.clock, self.delivery.creations.topic_uses, self._confirmed_times
        timer_ops = TimerOps(store, self.timers, self._watch_timers)
        replies = ReplyOps(self.exchange, clock, self._watch_deadlines)
        return {
            layout.APPEND: self.append.handle,
            layout.RESEND: Resend(store, self.append).handle,
            layout.TOPIC: CreateTopics(store, self.delivery.creations).handle,
            layout.CLAIM: Claims(store, self.timers, uses).handle,
            **CopiedOps(store, clock, self.turn_end, self.stored, uses).handlers(),
            layout.PULL: self.pulls.handle,
            layout.READ: self.reads.handle,
            layout.WINDOW: self.windows.handle,
            layout.CANCEL: self.waiting.cancel,
            layout.ADMIN: Admin(
                store, self.delivery, clock, host.facts, host.stop, self.turn_end, self.groups, self.topics, times
            ).handle,
            layout.TIMER_ADD: timer_ops.add,
            layout.TIMER_ADD_AGAIN: timer_ops.add_again,
            layout.TIMER_CANCEL: timer_ops.cancel,
            layout.TIMER_LIST: timer_ops.list,
            layout.LISTEN: replies.listen,
            layout.REPLY: replies.reply,
            layout.FORWARDED: replies.forwarded,
            layout.OUTCOME: replies.outcome,
            layout.LOOK_UP_ID: self.look_ups.by_id,
            layout.LOOK_UP_KEY: self.look_ups.by_key,
            layout.LEASE: QuotaLending(clock).handle,
            layout.BACKLOG: self.backlog_breakers.handle,
            **(self._replicas.handlers() if self._replicas is not None else {}),
        }

    # -- peers and requests

    def _identity(self) -> dict[str, object]:
        store, hold = self.store, self.output_hold
        shown = store.end_position if hold is None else min(store.end_position, hold.confirmed)
        return {
            "log_id": store.log_id.hex(),
            "broker_group": self._config.broker_group,
            "epoch": self._epoch,
            "end_position": shown,
            "durable_position": min(shown, store.durable_position),
            **(self._replicas.identity() if self._replicas is not None else {}),
        }

    def on_connected(self, peer: Peer) -> PeerState:
        """A connection was accepted; the caller keeps the state as `peer.peer_state`.

        The peer has to authenticate in time.
        """
        self.peers[peer] = self._strangers[peer] = None
        self._watch_deadlines()
        return PeerState(self.clock.monotonic_ms() + self._config.authenticate_ms)

    def _on_authenticated(self, peer: Peer) -> None:
        self._strangers.pop(peer, None)
        self._lanes.opened(peer)

    def on_closed(self, peer: Peer) -> None:
        """The connection is closed: withdraw its waiting requests, so that nothing is leased to it."""
        self.peers.pop(peer, None)
        self._strangers.pop(peer, None)
        self._lanes.closed(peer)
        if self.output_hold is not None:
            self.output_hold.drop(peer)
        self.waiting.drop(peer)
        self.pulls.on_closed(peer)
        self.exchange.on_closed(peer)
        if self._replicas is not None:
            self._replicas.on_closed(peer)

    def on_room(self, peer: Peer) -> None:
        """The peer's connection has sent most of its output: go on with what waited for that."""
        self.windows.on_room(peer)

    def on_request(self, peer: Peer, op: int, request_id: int, payload: bytes) -> None:
        """Serve one request, now or later. What the peer's role may not ask for is the handshake's."""
        state = peer.peer_state
        try:
            if op not in state.operations:
                return self.handshake.on_request(peer, op, request_id, payload)
            handler = self._handlers.get(op)
            if handler is None:
                raise RequestError(f"op {op}: unknown to this engine")
            handler(peer, request_id, payload)
        except (RequestError, EngineError) as error:
            peer.send_frame(op, request_id, error.code, [str(error).encode()])
        except LinkError as error:
            peer.send_frame(op, request_id, layout.INVALID, [str(error).encode()])
        except Exception:
            limited.exception("link=%s op=%d: request failed", state.name, op)
            sentence = b"internal error: the engine's log has the details"
            peer.send_frame(op, request_id, layout.UNAVAILABLE, [sentence])

    # -- wake-ups and time

    def turn_end(self) -> None:
        """Records were appended, or fetched from the disk: serve the requests that wait for them."""
        self.on_appended(self.store.take_woken())

    def on_appended(self, woken: list[tuple[int, int]]) -> None:
        """Serve the requests that wait for records of these queues."""
        if woken:
            try:
                self.delivery.on_woken(woken, self.clock.monotonic_ms())
                self.reads.on_woken(woken)
            except Exception:
                log.exception("waking pulls failed")  # what was woken is found again by lost_turns.py

    def tick(self, now_ms: int) -> int | None:
        """Do the work due at this monotonic time; returns when to call again, None: not before the host's `wake_at`."""
        self.starts.step()
        return self.schedule.run(now_ms)

    def _watch_deadlines(self) -> None:
        # Deadlines are checked only while something waits, so an idle engine sleeps.
        if self._deadlines.due_ms is None or self._only_reads_wait:
            self._only_reads_wait = False
            self.schedule.at(self._deadlines, self.clock.monotonic_ms() + self._config.tick_ms)

    def _watch_timers(self) -> None:
        wait_ms = self.timers.next_ms()
        if wait_ms is not None:
            self.schedule.at(self._firing, self.clock.monotonic_ms() + wait_ms)

    def _check_deadlines(self, now_ms: int) -> int | None:
        self.reads.on_time(now_ms)
        upcoming_ms, replies_wait = self.delivery.on_time(now_ms), self.exchange.on_time(now_ms)
        for peer in [each for each in self._strangers if each.peer_state.deadline_ms <= now_ms]:
            peer.close("did not authenticate in time")
        self.turn_end()
        if upcoming_ms is not None or replies_wait or self._strangers:
            return now_ms + self._config.tick_ms
        reads_at = self.reads.next_at_ms(now_ms)  # it may be half a minute away: an open page of the console waits so
        self._only_reads_wait = reads_at is not None
        return reads_at and max(reads_at, now_ms + self._config.tick_ms)

    def _fire_timers(self, now_ms: int) -> int | None:
        try:
            wait_ms = self.timers.step()
        except (PartlyWrittenError, TimersReturnedError) as error:
            self._die(f"delayed messages need a new start: {error}")
            return None
        finally:
            self.turn_end()
        return None if wait_ms is None else now_ms + wait_ms

    def _write_progress(self, now_ms: int) -> int:
        try:
            if self.delivery.has_progress and not self.delivery.write_progress(
                self._config.progress_cursors, now_ms=now_ms
            ):
                return now_ms + self._config.progress_pause_ms
        except EngineError as error:
            limited.warning("progress was not written: %s: retry in %d ms", error, self._config.progress_ms)
        return now_ms + self._config.progress_ms

    def _retain(self, now_ms: int) -> int | None:
        if self.waiting.stopping:
            return None  # the next start begins an unfinished deletion again
        return now_ms + self.store.retention.step(self.timers)

    # -- the end

    def turn_away(self, sentence: str) -> None:
        """Refuse clients' requests with NOT_MASTER from now on; empty: serve them again."""
        kept = {} if self._replicas is None else self._replicas.handlers()
        self._handlers = turned_away(self._all, sentence, kept) if sentence else self._all

    def release_waiting(self) -> None:
        """Answer all waiting requests with their results so far. From now on no request waits."""
        self.waiting.stop(self.peers)

    def close(self) -> None:
        """Stop firing, searching and writing; then write the progress. Every answered request is in the log."""
        for work in (self._deadlines, self._groups, self._topics, self._firing, self._progress, self._retention):
            self.schedule.stop(work)
        try:
            self.timers.close()
        except (OSError, EngineError) as error:
            log.warning("delayed messages were not marked as sent: %s: the next start looks for them", error)
        self.look_ups.close()
        try:
            self.delivery.write_progress(now_ms=self.clock.monotonic_ms(), is_final=True)
        except EngineError as error:
            log.warning("progress was not written at the end: %s", error)
