"""All broker groups of a cluster, as a producer proxy sends to them: links, breakers, and where each queue is."""

import logging
import math
import time
from collections.abc import Callable, Sequence

import gevent

from common.breaker import Breaker, BreakerConfig, State
from common.keyhash import queue_of
from common.limits import QueueLimit
from common.placement import GROUPS_MAX, Placement
from engine.client.append import AppendClient, Destination, Lanes
from engine.client.dial import Hello
from engine.client.durability import LANES
from engine.client.rpc import RpcClient
from engine.link.layout import U32

log = logging.getLogger("penstock.engine.client")

ONLY = "main"
NUMBERS = 256  # a queue's home is a byte
LOOK_S = 0.005
RESEND_S = (
    0.25  # silence after which what was sent and has no key goes elsewhere too, at the price of a copy if it was stored
)
DROP_S = 10.0  # silence after which the link is taken for dead: a machine without power resets nothing

# Nothing can be steered away from the only broker, and the lanes' QueueLimits, which know how slow it is, say when to refuse.
ALONE = BreakerConfig(bound_s_min=1.0, patience_s=math.inf)

Address = tuple[str, int]


class Broker:
    """One broker group: its name and number, the links to its broker, and whether that one is to be used."""

    def __init__(self, name: str, number: int, address: Address, append: AppendClient, rpc: RpcClient, now_s: float):
        self.name, self.number, self.address, self.append, self.rpc = name, number, address, append, rpc
        self.breaker = Breaker(now_s, ALONE if name == ONLY else BreakerConfig())
        self._moved_sent = False
        for lane in append.lanes:
            self._apply(lane)

    def look(self, now_s: float) -> None:
        """Tell the breaker what the lanes saw, and the lanes what it says."""
        breaker, lanes = self.breaker, self.append.lanes
        before = breaker.state
        slowest = [each for lane in lanes if (each := lane.take_slowest()) is not None]
        oldest = [each for lane in lanes if (each := lane.oldest_sent_at) is not None]
        owed_s = now_s - min(oldest) if oldest else None
        breaker.look(now_s, max(slowest) if slowest else None, owed_s)
        self.show(now_s, before)
        if owed_s is not None and owed_s > RESEND_S and not self._moved_sent and breaker.state is State.OPEN:
            self._moved_sent = True
            for lane in lanes:
                lane.yield_sent()
        if owed_s is not None and owed_s > DROP_S:
            for lane in lanes:
                lane.drop("silent for too long")

    def show(self, now_s: float, before: State) -> None:
        """Let the lanes work by the breaker's verdict."""
        for lane in self.append.lanes:
            self._apply(lane)
        state = self.breaker.state
        if state is before:
            return
        if state is State.OPEN:
            self._moved_sent = False
            for lane in self.append.lanes:
                lane.yield_unsent()
            log.warning("broker_group=%s: breaker opened: %s", self.name, self.breaker.reason)
        else:
            log.info("broker_group=%s: breaker %s", self.name, state.value)

    def renumber(self, number: int) -> None:
        self.number = number
        for lane in self.append.lanes:
            lane.group = number

    def close(self) -> None:
        self.append.close()
        self.rpc.close()

    def _apply(self, lane) -> None:
        lane.share, lane.refusing = self.breaker.share, self.breaker.refusing


class Brokers:
    """The broker groups, one as they are given or many as the configuration names them.

    Args:
        role: told to the brokers.
    Attributes:
        on_changed: called when homes or topic ids that were learnt do not hold any more.
        lanes: over all groups, in the order of durability.LANES.
        only: the broker where there is one for good.
        placement: over the names of `listed`; None while no group is known, and where there is one for good.
    """

    def __init__(self, cluster_key: bytes, role: str):
        self.cluster_key, self._role = cluster_key, role
        self.on_changed: Callable[[], None] = lambda: None
        self._by_number: dict[int, Broker] = {}
        self._last_number = -1
        self._log_ids: dict[str, str] = {}
        self.only: Broker | None = None
        self.placement: Placement | None = None
        self.lanes: tuple[Lanes, ...] = tuple(Lanes(row.number) for row in LANES)
        self._looking = gevent.get_hub().loop.timer(LOOK_S, LOOK_S)
        self._looking.start(self._look)

    def use_one(self, address: Address, rpc: RpcClient | None = None) -> None:
        """There is one broker and there will be no other: nothing is placed, and a message costs no question where it goes."""
        self.only = self._make(ONLY, 0, address, rpc)
        self._by_number = {0: self.only}
        self.lanes = tuple(Lanes(lane.number, lane) for lane in self.only.append.lanes)

    def follow(self, groups: Sequence[tuple[str, Address]]) -> None:
        """Work by these groups from now on. What is on its way to one that has gone is answered as when its link breaks."""
        wanted = dict(groups[:GROUPS_MAX])
        if wanted == {broker.name: broker.address for broker in self.listed}:
            return
        gone = [broker for broker in self.listed if wanted.get(broker.name) != broker.address]
        for broker in gone:
            self._remove(broker)
        for name in sorted(wanted.keys() - {broker.name for broker in self.listed}):
            number = self._fresh_number()
            self._add(self._make(name, number, wanted[name], None))
        self._place()
        for broker in gone:  # after its successors are there, which may take its messages over
            broker.close()

    @property
    def listed(self) -> list[Broker]:
        """All that there are, in the order of the placement's names."""
        return list(self._by_number.values())

    def numbered(self, number: int) -> Broker:
        """The group of this number, which a lane has."""
        return self._by_number[number]

    @property
    def connected(self) -> bool:
        return bool(self.listed) and all(broker.append.connected for broker in self.listed)

    @property
    def idle(self) -> bool:
        """Every message taken has its answer."""
        return all(broker.append.idle for broker in self.listed)

    @property
    def queue_limits(self) -> list[QueueLimit]:
        """Of all lanes."""
        return [lane.limit for broker in self.listed for lane in broker.append.lanes]

    def homes(self, topic: int, queues: int) -> bytes:
        """The number of the broker group of each queue; `topic` is the name's hash. There must be groups."""
        if self.placement is None:
            raise ValueError("no broker group is known")
        numbers = bytes(self._by_number)
        return self.placement.homes(topic, queues).translate(numbers + bytes(256 - len(numbers)))

    def place(self, destination: Destination, key: bytes | None, turn: int) -> tuple[Broker, int, int] | None:
        """The broker, topic id and queue for a message that is not appended by a lane; None: nobody takes it now.

        Without a key it is the first queue from number `turn` on whose broker is to be used.
        """
        queues = destination.queues
        tried = [queue_of(key, queues)] if key is not None else [(turn + step) % queues for step in range(queues)]
        for any_share in (False, True):
            for queue in tried:
                number = 0 if destination.homes is None else destination.homes[queue]
                broker = self._by_number.get(number)
                topic_id = (
                    destination.topic_id if destination.ids is None else U32.unpack_from(destination.ids, 4 * number)[0]
                )
                takes = broker is not None and topic_id and not broker.breaker.refusing
                if takes and broker is not None and (any_share or broker.breaker.share):
                    return broker, topic_id, queue
        return None

    def health(self) -> bool | str:
        """For /readyz: serving is possible while any group takes messages."""
        if any(broker.append.connected and broker.rpc.connected for broker in self.listed):
            return True
        return "the link to the engine is down" if self.listed else "the configuration names no broker group"

    def close(self) -> None:
        self._looking.stop()
        for broker in self.listed:
            broker.close()

    def _place(self) -> None:
        self.placement = Placement([broker.name for broker in self.listed]) if self._by_number else None
        self.on_changed()

    def _fresh_number(self) -> int:
        """One that was not used for long: what is on its way knows a topic's id by the number of the group."""
        number = self._last_number
        while (number := (number + 1) % NUMBERS) in self._by_number:
            pass
        self._last_number = number
        return number

    def _add(self, broker: Broker) -> None:
        self._by_number[broker.number] = broker
        for lanes in self.lanes:
            lanes.put(broker.number, broker.append.lanes[lanes.number])

    def _remove(self, broker: Broker) -> None:
        del self._by_number[broker.number]
        for lanes in self.lanes:
            lanes.put(broker.number, None)

    def _greeted(self, broker: Broker, hello: Hello) -> None:
        """With another log than before no topic id of this broker holds, not even those of messages on their way elsewhere."""
        before, self._log_ids[broker.name] = self._log_ids.get(broker.name), hello.log_id
        if before in (None, hello.log_id):
            return
        log.warning(
            "broker_group=%s: another log (%s) than before; topics are looked up anew", broker.name, hello.log_id
        )
        if broker is self.only:
            self.on_changed()
        else:
            self._remove(broker)
            broker.renumber(self._fresh_number())
            self._add(broker)
            self._place()

    def _make(self, name: str, number: int, address: Address, rpc: RpcClient | None) -> Broker:
        append = AppendClient(address, self.cluster_key, role=self._role, group=number)
        rpc = rpc or RpcClient(address, self.cluster_key, role=self._role)
        broker = Broker(name, number, address, append, rpc, time.monotonic())
        append.on_hello = lambda hello: self._greeted(broker, hello)
        append.on_up = lambda: self._link_up(broker)
        append.on_down = lambda reason: self._link_down(broker, reason)
        return broker

    def _link_up(self, broker: Broker) -> None:
        if broker.append.connected:
            now_s, before = time.monotonic(), broker.breaker.state
            broker.breaker.link_up(now_s)
            broker.show(now_s, before)

    def _link_down(self, broker: Broker, reason: str) -> None:
        now_s, before = time.monotonic(), broker.breaker.state
        broker.breaker.link_down(now_s, reason)
        broker.show(now_s, before)

    def _look(self) -> None:
        now_s = time.monotonic()
        for broker in self.listed:
            broker.look(now_s)
