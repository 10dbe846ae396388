"""A proxy without sockets: it finds the master as `MasterClient` does, and appends over lanes that outlive a switch.

`MasterChoice`, `LaneCore` and `leads_still` are those of production; what is here opens and closes links for them.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from engine.client.destination import Destination
from engine.client.dial import Hello
from engine.client.durability import LANES, LaneRow
from engine.client.lane_core import LaneCore
from engine.client.master_choice import KEEP_S, PAUSE_S_MAX, SEEK_S, MasterChoice, leads_still
from engine.link import layout
from tests.sim.group.greeting import Greeting
from tests.sim.group.ledger import CLASSES, QUEUES, TIMERS
from tests.sim.group.network import End, frames_of, parsed
from tests.sim.group.process import Process
from tests.sim.sent import Broken

if TYPE_CHECKING:
    from tests.sim.group.cluster import Cluster

LOOK_MS = 100
PAUSE_MS_MIN = 10
DOWN: tuple[int, bytes] = (layout.UNAVAILABLE, b"")
ROLE = "producer_proxy"


class BrokerLine:
    """The link for requests to one broker, opened again and again."""

    def __init__(self, proxy: "Proxy", number: int, target: str) -> None:
        self._proxy, self._number, self._target = proxy, number, target
        self.hello: Hello | None = None
        self._end: End | None = None
        self._asked: dict[int, tuple[Callable[[int, bytes], None], bool]] = {}
        self._last_id = 0
        self._pause_ms = PAUSE_MS_MIN
        self._try()

    def _try(self) -> None:
        Greeting(self._proxy, self._target, ROLE, self._opened, self._ended)

    def _opened(self, end: End, hello: Hello) -> None:
        self._end, self.hello, self._pause_ms = end, hello, PAUSE_MS_MIN
        end.on_frame, end.on_closed = self._on_frame, self._ended
        self._proxy.greeted(self._number, hello)

    def ask(self, op: int, payload: bytes, on_answer: Callable[[int, bytes], None], *, doubts: bool = True) -> None:
        """Send a request; without a link it is UNAVAILABLE.

        Args:
            doubts: greet the broker again when it answers NOT_MASTER.
        """
        if self._end is None:
            self._proxy.later(0, partial(on_answer, *DOWN))
            return
        self._last_id += 1
        self._asked[self._last_id] = on_answer, doubts
        self._end.send(layout.frame(op, self._last_id, payload))

    def reconnect(self) -> None:
        """Close the link, and open another one."""
        if self._end is not None:
            self._ended()

    def greet_again(self, hello: Hello) -> None:
        """Do so if this greeting is still the last one, and did not make the broker the one to use."""
        if self.hello is hello and self._number != self._proxy.choice.master:
            self.reconnect()

    def _on_frame(self, frame: bytes) -> None:
        _, request_id, code, payload = parsed(frame)
        on_answer, doubts = self._asked.pop(request_id, (None, False))
        if on_answer is None:
            return
        if self._end is not None:
            self._proxy.queued_ms = self._end.other.queued_ms.get(request_id, 0)
        if code == layout.NOT_MASTER and doubts:
            self.reconnect()
        on_answer(code, payload)

    def _ended(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end.close()
        asked, self._asked = self._asked, {}
        for on_answer, _ in asked.values():
            on_answer(layout.TIMEOUT, b"")
        self._proxy.ended(self._number)
        self._proxy.later(self._pause_ms, self._try)
        self._pause_ms = min(int(1000 * PAUSE_S_MAX), 2 * self._pause_ms)


class Lane(LaneCore):
    """A lane over simulated connections."""

    def __init__(self, proxy: "Proxy", row: LaneRow) -> None:
        super().__init__(row)
        self._proxy = proxy
        self.keeps = True
        self.next_end: End
        self.master = -1, 0
        self.greeting: Greeting | None = None
        self._sent_again: set[int] = set()

    def _open(self, fd: int) -> End:
        end = self.next_end
        self._sent_again.clear()
        end.on_frame, end.on_closed = self._answered, lambda: self._lost(end)
        return end

    def _soon(self, call: Callable[[], None]) -> None:
        self._proxy.later(0, call)

    def _write(self, link: End, frames: bytes) -> None:
        for frame in frames_of(frames):
            op, request_id, _, _ = parsed(frame)
            if op == layout.RESEND:
                self._sent_again.add(request_id)
            elif self._sent_again:
                raise Broken(f"lane {self.number}: an append overtakes {len(self._sent_again)} that are sent again")
            link.send(frame)

    def _answered(self, frame: bytes) -> None:
        self._sent_again.discard(parsed(frame)[1])
        super()._answered(frame)


class Proxy(Process):
    """Finds the master, knows the topics, and has one lane per durability.

    Attributes:
        destinations: by topic; with id 0 while the present master was not asked.
        queued_ms: when the broker has made the answer that is being taken.
    """

    def __init__(self, cluster: "Cluster", name: str) -> None:
        super().__init__(cluster, name)
        self.choice = MasterChoice()
        self.hello: Hello | None = None
        self.lanes = [Lane(self, row) for row in LANES]
        self.destinations = {
            each.topic: Destination(each.topic.encode(), 0, QUEUES, each.durability, 1 << 20) for each in CLASSES
        }
        self.destinations[TIMERS] = Destination(TIMERS.encode(), 0, QUEUES, layout.FSYNC, 1 << 20)
        self.lines: list[BrokerLine] = []
        self.queued_ms = 0
        self._log_id = ""
        self._away_ms: int | None = None
        self._is_told = False
        self._pause_ms = 0
        self._linked_ms = 0

    def start(self) -> None:
        """Start the process."""
        self.begin()
        for lane in self.lanes:
            lane.on_down = self._lane_lost
        self.lines = [BrokerLine(self, number, name) for number, name in enumerate(self.cluster.brokers)]
        self._look()

    def accept(self, end: End) -> None:
        end.close()

    def ask(self, op: int, payload: bytes, on_answer: Callable[[int, bytes], None]) -> bool:
        """Ask the present master; False: none is known."""
        if self.choice.master is None:
            return False
        self.lines[self.choice.master].ask(op, payload, on_answer)
        return True

    def ask_broker(self, name: str, op: int, payload: bytes, on_answer: Callable[[int, bytes], None]) -> None:
        """Ask one broker, the master or not."""
        self.lines[list(self.cluster.brokers).index(name)].ask(op, payload, on_answer, doubts=False)

    # -- the master

    def greeted(self, number: int, hello: Hello) -> None:
        """A broker's link is open."""
        before = self.choice.master
        if self.choice.is_old(hello):
            self.later(int(1000 * PAUSE_S_MAX), partial(self.lines[number].greet_again, hello))
        if self.choice.greeted(number, hello):
            self._use_master(number)
            if before is not None and before != number:
                self.lines[before].reconnect()

    def ended(self, number: int) -> None:
        """A broker's link has ended."""
        if self.choice.ended(number) and self.choice.master is not None:
            self._use_master(self.choice.master)

    def _use_master(self, number: int) -> None:
        self.hello = self.lines[number].hello
        assert self.hello is not None
        for each in self.destinations.values():
            each.topic_id = 0
        self._learn_topics(number)
        for lane in self.lanes:
            if lane.link is None:
                self._connect(lane)
            elif lane.master != (number, self.hello.term):
                lane.drop("another broker leads")

    def _learn_topics(self, number: int) -> None:
        names = list(self.destinations)
        payload = json.dumps({"topics": [{"name": name, "queues": QUEUES} for name in names]}).encode()

        def on_answer(code: int, answer: bytes) -> None:
            if self.choice.master != number:
                return
            if code != layout.OK:
                self.later(LOOK_MS, lambda: self._learn_topics(number) if self.choice.master == number else None)
                return
            for name, found in zip(names, json.loads(answer)["topics"], strict=True):
                self.destinations[name].topic_id = found["id"]

        self.lines[number].ask(layout.TOPIC, payload, on_answer)

    # -- lanes

    def _lane_lost(self, lane: Lane) -> None:
        if self._away_ms is None:
            self._away_ms = self.world.now_ms
        lasted_ms = self.world.now_ms - self._linked_ms
        self._pause_ms = 0 if lasted_ms > 1000 * PAUSE_S_MAX else self._next_pause_ms()
        number, lane.master = lane.master[0], (-1, 0)
        if number == self.choice.master and number >= 0:
            self.lines[number].reconnect()
        self._connect(lane)

    def _next_pause_ms(self) -> int:
        return min(int(1000 * PAUSE_S_MAX), max(PAUSE_MS_MIN, 2 * self._pause_ms))

    def _connect(self, lane: Lane) -> None:
        if lane.greeting is not None:
            lane.greeting.give_up()
        self.later(self._pause_ms, lambda: self._dial(lane))

    def _dial(self, lane: Lane) -> None:
        number = self.choice.master
        if lane.link is not None or number is None:
            return
        if lane.greeting is not None:
            lane.greeting.give_up()

        def opened(end: End, hello: Hello) -> None:
            if number != self.choice.master or not leads_still(hello, self.hello):
                end.close()
                failed()
            elif lane.link is None:
                self._take(lane, number, end, hello)
            else:
                end.close()

        def failed() -> None:
            self._pause_ms = self._next_pause_ms()
            if self.choice.master == number:
                self.lines[number].reconnect()
            self._connect(lane)

        target = list(self.cluster.brokers)[number]
        lane.greeting = Greeting(self, target, ROLE, opened, failed, lane=f"{self.name}.{lane.number}")

    def _take(self, lane: Lane, number: int, end: End, hello: Hello) -> None:
        if self._log_id not in ("", hello.log_id):
            for each in self.lanes:
                each.end_sent()  # its positions mean nothing in another log
        self._log_id = hello.log_id
        lane.master, lane.next_end, self._linked_ms = (number, hello.term), end, self.world.now_ms
        lane.use(0, "", hello.end_position)
        if all(each.link is not None for each in self.lanes):
            self._away_ms, self._is_told = None, False

    def _look(self) -> None:
        self.later(LOOK_MS, self._look)
        away_s = 0.0 if self._away_ms is None else (self.world.now_ms - self._away_ms) / 1000
        lost = [lane for lane in self.lanes if lane.link is None]
        if away_s > SEEK_S and not self._is_told:
            self._is_told = True
            for lane in lost:
                lane.refuse_unsent()
        if away_s > KEEP_S:
            for lane in lost:
                lane.end_sent()
