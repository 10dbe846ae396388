"""The broker groups of a cluster as a producer proxy uses them: append lanes, breakers, the group of each queue."""

import math
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

import gevent

from common.breaker import Breaker, BreakerConfig, State
from common.config.engine_records import EngineRecords
from common.limits import QueueLimit
from common.placement import ID_SLOTS, IDS_HASH, NONE_PLACED, PlacedTopics, Placement
from common.readiness import Note
from common.resting_timer import RestingTimer
from common.stalls import Stalls
from engine.client.append import AppendClient, Destination, Lane, Lanes
from engine.client.dial import Hello, admit_all
from engine.client.durability import LANES
from engine.client.master_append import MasterAppendClient
from engine.client.master_choice import SWITCHED_S
from engine.client.master_client import MasterClient
from engine.client.router import DROP_S, LOOK_S, BrokerGroup, Place, Router, brokers_at, limited, link_to
from engine.client.rpc import RpcLink
from engine.link.codes import TIMEOUT
from engine.link.integers import U32
from engine.link.operations import TOPIC

ONLY = "main"
RESEND_S = 0.25
"""Silence after which sent messages without a key are sent to another group too. If they were stored, copies result.
A group with several brokers gets SWITCHED_S: its next master is sent them again, and finds those that it has."""

START_S = 3.0
"""A proxy that starts is ready when all groups are connected, or after this time when any is: keys of the others would be
refused. Longer delays a start while a group is away."""

PROBE = b'{"topics": []}'
PROBE_S = 3.0

# Nothing can be steered away from the only broker. The lanes' QueueLimits know how slow it is and refuse.
ALONE = BreakerConfig(bound_s_min=1.0, patience_s=math.inf)
# A hanging master is replaced by another broker of its group; then the messages that waited are stored.
REPLICATED = BreakerConfig(patience_s=SWITCHED_S)


class Broker(BrokerGroup):
    """One broker group with the lanes that append to it.

    Attributes:
        is_silent: a rare operation had no answer in time, and none has come since. The breaker sees appends only, so it
            does not learn of a broker that hangs while nothing is sent to it.
        switch_s: time within which another of its brokers takes over; 0: it has only one.
        is_spared: an operator steers messages away that can go to another group.
    """

    def __init__(self, name: str, number: int, address: Place, append: AppendClient, rpc: RpcLink, now_s: float):
        self.switch_s = SWITCHED_S if brokers_at(address) else 0.0
        config = REPLICATED if self.switch_s else BreakerConfig()
        super().__init__(name, number, address, rpc, Breaker(now_s, ALONE if name == ONLY else config))
        self.append, self.is_silent, self.is_spared = append, False, False
        self._moved_sent = False
        for lane in append.lanes:
            self._apply(lane)

    def look(self, now_s: float, stalls: Stalls) -> None:
        """Pass the lanes' observations to the breaker, and its decision to the lanes. `stalls`: of this process."""
        lanes = self.append.lanes
        slowest = [each for lane in lanes if (each := lane.take_slowest()) is not None]
        oldest = [each for lane in lanes if (each := lane.oldest_sent_at) is not None]
        owed_s = now_s - min(oldest) - stalls.since(min(oldest)) if oldest else None
        self.observe(now_s, max(slowest) if slowest else None, owed_s)
        if (
            owed_s is not None
            and owed_s > (self.switch_s or RESEND_S)
            and not self._moved_sent
            and self.breaker.state is State.OPEN
        ):
            self._moved_sent = True
            for lane in lanes:
                lane.yield_sent()
        if owed_s is not None and owed_s > DROP_S:
            for lane in lanes:
                lane.drop("silent for too long")

    def note_silence(self) -> None:
        """Count as silent until the broker answers a question that asks nothing."""
        if not self.is_silent and self.rpc.connected:
            limited.warning("broker_group=%s: does not answer rare operations", self.name, about=self.name)
            self.is_silent = True
            gevent.spawn(self._probe)

    def _probe(self) -> None:
        while self.is_silent:
            code, _ = self.rpc.call(TOPIC, PROBE, PROBE_S)
            self.is_silent = code == TIMEOUT  # a link that broke is the breaker's matter

    def wait_answered(self, deadline_s: float) -> bool:
        """Block until all messages taken so far have their answers; False when they have not at the deadline."""
        since_s = time.monotonic()
        while not self.has_answered_before(since_s):
            if time.monotonic() >= deadline_s:
                return False
            gevent.sleep(LOOK_S)
        return True

    def has_answered_before(self, since_s: float) -> bool:
        """Whether all messages that were taken up to then, in monotonic seconds, have their answers."""
        return all((taken_at := lane.oldest_taken_at) is None or taken_at > since_s for lane in self.append.lanes)

    def spare(self, is_spared: bool) -> None:
        """Set whether messages that can go to another group do so. Those that cannot are taken as ever."""
        self.is_spared = is_spared
        for lane in self.append.lanes:
            self._apply(lane)

    def number_lanes(self) -> None:
        """Pass the group's new number to the lanes."""
        for lane in self.append.lanes:
            lane.group = self.number

    def close(self) -> None:
        self.append.close()
        super().close()

    def _follow_breaker(self, state_before: State, was_refusing: bool) -> None:
        for lane in self.append.lanes:
            self._apply(lane)
        if self.breaker.state is State.OPEN and state_before is not State.OPEN:
            self._moved_sent = False
            for lane in self.append.lanes:
                lane.yield_unsent()
        super()._follow_breaker(state_before, was_refusing)

    def _apply(self, lane: Lane) -> None:
        lane.share = 0 if self.is_spared else self.breaker.share
        lane.refusing = self.breaker.refusing


class Brokers:
    """The broker groups: one that is given, or those that the configuration names.

    Args:
        role: told to the brokers.
        records: of the broker groups' engines, by which others are refused; None: every engine is used.
    Attributes:
        lanes: over all groups, in the order of durability.LANES.
        only: the broker when there is permanently a single one.
        router: membership and placement of the groups.
        id_homes: the group's number of each slot of ids; see `common.placement.queue_of_id`.
        generation: grows whenever homes or topic ids that were learnt are void. An answer to a question from before is.
    """

    def __init__(self, cluster_key: bytes, role: str, records: EngineRecords | None = None):
        self.cluster_key, self._role, self._records = cluster_key, role, records
        self._listeners: list[Callable[[], None]] = []
        self._id_listeners: list[Callable[[int, int], int]] = []
        self.generation = 0
        self.router: Router[Broker] = Router(self._make)
        self._starts: dict[str, tuple[str, str, int]] = {}  # (log id, epoch, term) by group
        self._made_s = time.monotonic()
        self.only: Broker | None = None
        self.id_homes = bytes(ID_SLOTS)
        self.lanes: tuple[Lanes, ...] = tuple(Lanes(row.number) for row in LANES)
        self._stalls = Stalls(LOOK_S, self._made_s)
        self._looking = RestingTimer(LOOK_S, self._look)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called whenever homes or topic ids that were learnt are void."""
        self._listeners.append(callback)

    def on_unknown_id(self, callback: Callable[[int, int], int]) -> None:
        """Have `callback(number of the group, topic id)` called for each topic id that a broker does not know.

        It forgets the id and returns how many topics it has forgotten.
        """
        self._id_listeners.append(callback)

    def unknown_id(self, broker: Broker, topic_id: int) -> None:
        """A broker does not know a topic id that it gave: its topics are looked up again."""
        if sum(callback(broker.number, topic_id) for callback in self._id_listeners):
            limited.warning(
                "broker_group=%s: topic id %d is unknown there: its topic is looked up again", broker.name, topic_id,
                about=broker.name,
            )  # fmt: skip

    def use_one(self, address: Place, rpc: RpcLink | None = None) -> None:
        """Use one broker group permanently: nothing is placed, and a message costs no look-up of its group."""
        self.only = self._make(ONLY, 0, address, rpc)
        self.router.use_one(self.only)
        self.lanes = tuple(Lanes(lane.number, lane) for lane in self.only.append.lanes)

    def follow(
        self, groups: Sequence[tuple[str, Place]], placed: PlacedTopics = NONE_PLACED, spared: Collection[str] = ()
    ) -> None:
        """Use these groups from now on. Messages on their way to a removed one are answered as when its link breaks.

        Args:
            placed: see Router.follow.
            spared: names of the groups that an operator steers messages away from.
        """
        changed = self.router.follow(groups, placed)
        for broker in self.listed:
            broker.spare(broker.name in spared)
        if changed is None:
            return
        removed, added = changed
        for broker in removed:
            self._put_lanes(broker.number, None)
        for broker in added:
            self._put_lanes(broker.number, broker)
        self._place_ids()
        self._tell_changed()
        for broker in removed:  # after the added ones are in use, which may take its messages over
            broker.close()

    @property
    def placement(self) -> Placement | None:
        """Over the names of `listed`; None while no group is known, and with a permanent single broker."""
        return self.router.placement

    @property
    def listed(self) -> list[Broker]:
        """All groups, in the order of the placement's names."""
        return self.router.groups

    def numbered(self, number: int) -> Broker:
        """The group of this number, which a lane has. Raises KeyError."""
        broker = self.router.numbered(number)
        if broker is None:
            raise KeyError(number)
        return broker

    @property
    def connected(self) -> bool:
        return bool(self.listed) and all(broker.append.connected for broker in self.listed)

    @property
    def switch_s(self) -> float:
        """The longest time of a group within which another of its brokers takes over; 0: each has only one."""
        return max((broker.switch_s for broker in self.listed), default=0.0)

    @property
    def idle(self) -> bool:
        """Whether every message that was accepted has its answer."""
        return all(broker.append.idle for broker in self.listed)

    @property
    def queue_limits(self) -> list[QueueLimit]:
        """The limits of all lanes."""
        return [lane.limit for broker in self.listed for lane in broker.append.lanes]

    def homes(self, topic: int, queues: int) -> bytes:
        """The number of the broker group of each queue; `topic` is the name's hash.

        Raises ValueError while no group is known.
        """
        return self.router.homes(topic, queues)

    def place(self, destination: Destination, key: bytes | int | None, turn: int) -> tuple[Broker, int, int] | None:
        """The broker, topic id and queue for a message that no lane appends; None: no broker takes it now.

        A number is the queue itself. Without a key it is the first queue from number `turn` on whose broker may be used.
        """
        if isinstance(key, int):
            tried = [key]
        elif key is not None:
            tried = [destination.queue_of_key(key)]
        else:
            count = destination.queues - destination.first_queue
            tried = [destination.first_queue + (turn + step) % count for step in range(count)]
        for any_share in (False, True):
            for queue in tried:
                number = 0 if destination.homes is None else destination.homes[queue]
                broker = self.router.numbered(number)
                topic_id = (
                    destination.topic_id if destination.ids is None else U32.unpack_from(destination.ids, 4 * number)[0]
                )
                takes = broker is not None and topic_id and not broker.breaker.refusing
                is_usable = broker is not None and broker.breaker.share and not (broker.is_silent or broker.is_spared)
                if takes and broker is not None and (any_share or is_usable):
                    return broker, topic_id, queue
        return None

    def health(self) -> bool | str:
        """For /readyz: serving is possible while any group takes messages. At a start, all are waited for; see START_S."""
        refused = next(iter(self._records.refusals.values()), None) if self._records is not None else None
        away = [each.name for each in self.listed if not (each.append.connected and each.rpc.connected)]
        if len(away) < len(self.listed):
            if away and refused is None and time.monotonic() < self._made_s + START_S:
                return f"broker_group={away[0]}: not connected yet"
            return True if refused is None else Note(refused)
        if refused is not None:
            return refused
        return "the link to the engine is down" if self.listed else "the configuration names no broker group"

    def close(self) -> None:
        self._looking.close()
        self.router.close()

    def _put_lanes(self, number: int, broker: Broker | None) -> None:
        for lanes in self.lanes:
            lanes.put(number, None if broker is None else broker.append.lanes[lanes.number])

    def _place_ids(self) -> None:
        self.id_homes = self.router.homes(IDS_HASH, ID_SLOTS) if self.listed else bytes(ID_SLOTS)
        for lanes in self.lanes:
            lanes.id_homes = self.id_homes

    def _tell_changed(self) -> None:
        self.generation += 1
        for callback in self._listeners:
            callback()

    def _greeted(self, broker: Broker, hello: Hello) -> None:
        """Void all topic ids of this broker when its engine has started again, also those of messages on their way
        elsewhere.

        It may serve another log then, or an older copy of its own.
        """
        start = hello.log_id, hello.epoch, hello.term
        before, self._starts[broker.name] = self._starts.get(broker.name), start
        if before in (None, start):
            return
        if before is not None and before[0] != hello.log_id:
            limited.warning(
                "broker_group=%s: another log (%s) than before", broker.name, hello.log_id, about=broker.name
            )
        limited.info(
            "broker_group=%s: the engine has started again, or another one leads; topics are looked up again",
            broker.name,
            about=broker.name,
        )
        if broker is not self.only:
            self._put_lanes(broker.number, None)
            self.router.renumber(broker)
            broker.number_lanes()
            self._put_lanes(broker.number, broker)
            self._place_ids()
        self._tell_changed()

    def _make(self, name: str, number: int, address: Place, rpc: RpcLink | None = None) -> Broker:
        admits = admit_all if self._records is None else partial(self._records.admits, None if name == ONLY else name)
        rpc = rpc or link_to(address, self.cluster_key, role=self._role, admits=admits)
        if isinstance(rpc, MasterClient):
            append: AppendClient = MasterAppendClient(rpc, self.cluster_key, self._role, number, admits)
        else:
            host, port = address
            append = AppendClient((host, port), self.cluster_key, role=self._role, group=number, admits=admits)  # type: ignore[arg-type]
        broker = Broker(name, number, address, append, rpc, time.monotonic())
        append.on_hello = lambda hello: self._greeted(broker, hello)
        append.on_up = lambda: self._link_up(broker)
        append.on_down = lambda reason: self._link_down(broker, reason)
        append.on_busy = self._wake
        for lane in append.lanes:
            lane.on_unknown_id = partial(self.unknown_id, broker)
        self._wake()
        return broker

    def _link_up(self, broker: Broker) -> None:
        if broker.append.connected:
            broker.link_up()
            self._wake()

    def _link_down(self, broker: Broker, reason: str) -> None:
        broker.link_down(reason)
        self._wake()

    def _wake(self) -> None:
        if self._looking.wake():
            self._stalls.resume(time.monotonic())

    def _look(self) -> None:
        now_s = time.monotonic()
        self._stalls.look(now_s)
        for broker in self.listed:
            broker.look(now_s, self._stalls)
        # A breaker that is closed judges only appends that wait for an answer: none does, and the first one wakes.
        if all(broker.append.rests and broker.breaker.state is State.CLOSED for broker in self.listed):
            self._looking.rest()
