"""Simulated worlds: engines, links and a virtual clock in one process, without gevent, sockets or files.

    world = World(seed=7)
    engine = world.engine("a")
    link = engine.connect(owner)
    world.run(for_ms=86_400_000)
    world.trace()

Each step is an event in the world's heap, at a time in milliseconds. Events of the same time run in the order in which
they were added. All randomness comes from the world's seed, so one seed gives one trace.
"""

import hashlib
import hmac
import json
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Protocol

from engine.config import LogConfig
from engine.env.simulated import SimulatedEnv
from engine.link import layout
from engine.log import open_log
from engine.node import Node, NodeConfig, NodeHost

KEY = b"k" * 32
START_MS = 1_700_000_000_000
LATENCY_MS_MAX = 3
DIRECTORY = "/engine"
Answer = Callable[[int, bytes], None]


class World:
    """Time, randomness and trace of one simulation."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = START_MS
        self.engines: dict[str, Engine] = {}
        self.events = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._added = 0
        self._trace = hashlib.sha256()

    def engine(self, name: str, log: LogConfig | None = None, **node: int) -> "Engine":
        """A new engine, started."""
        engine = self.engines[name] = Engine(self, name, log or LogConfig(segment_bytes=1 << 20), node)
        engine.start()
        return engine

    def at(self, at_ms: int, call: Callable[[], None]) -> None:
        """Schedule `call()` at a time of the world."""
        self._added += 1
        heappush(self._heap, (max(at_ms, self.now_ms), self._added, call))

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule `call()` after a delay."""
        self.at(self.now_ms + delay_ms, call)

    def run(self, for_ms: int) -> None:
        """Run the events of this span of time."""
        until_ms = self.now_ms + for_ms
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, _, call = heappop(self._heap)
            self.events += 1
            call()
        self.now_ms = until_ms

    def note(self, *fields: object) -> None:
        """Add an event to the trace."""
        self._trace.update(repr((self.now_ms, *fields)).encode())

    def trace(self) -> str:
        """A digest of the trace."""
        return self._trace.hexdigest()


class WorldEnv(SimulatedEnv):
    """A machine whose clock is the world's. Its disk outlives crashes of the engine on it."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__(world.random.randrange(1 << 32))

    @property
    def clock_ms(self) -> int:  # type: ignore[override]
        return self._world.now_ms

    @clock_ms.setter
    def clock_ms(self, value: int) -> None:
        """Does not advance the world's clock: a pausing thread takes no virtual time."""


class Engine:
    """One node with its machine. `incarnation` counts starts; events of earlier ones are ignored.

    Attributes:
        node: None while the engine is down.
    """

    def __init__(self, world: World, name: str, log: LogConfig, node: dict[str, int]) -> None:
        self.world, self.name, self.env = world, name, WorldEnv(world)
        self.node: Node | None = None
        self.incarnation = 0
        self._log = log
        self._config = NodeConfig(KEY, **{"tick_ms": 1000, "progress_ms": 5000, **node})
        self._woken_ms = -1
        self._links: list[Link] = []

    def start(self) -> None:
        """Recover from the disk and serve."""
        assert self.node is None
        self.incarnation += 1
        store = open_log(self.env, DIRECTORY, self._log, notify=lambda: self._soon(lambda node: node.turn_end()))
        host = NodeHost(
            self.env.clock, self.env.random_bytes, self.env.random_fraction,
            in_loop=lambda call: self._soon(lambda node: call()), wake_at=self._wake_at, die=self.env.die, stop=self.stop, facts=dict,
        )  # fmt: skip
        self.node = Node(store, self._config, host)
        self.world.note(self.name, "start", store.end_position)

    def stop(self) -> None:
        """Stop cleanly: all requests are answered, all data is written and synced."""
        assert self.node is not None
        node = self.node
        node.release_waiting()
        self._cut_links()
        node.close()
        node.store.close()
        self.node = None
        self.world.note(self.name, "stop")

    def crash(self, power_cut: bool) -> None:
        """Kill the process, or cut the power: then unsynced data is lost or torn."""
        self.world.note(self.name, "crash", power_cut)
        self.node = None
        self._cut_links()
        if power_cut:
            self.env.crash(self.world.random)
        else:
            self.env.end_process()

    def connect(self, owner: "Owner") -> "Link | None":
        """Make a link, which authenticates automatically; None while the engine is down."""
        if self.node is None:
            return None
        link = Link(self, owner)
        self._links.append(link)
        return link

    def deliver(self, link: "Link", op: int, request_id: int, payload: bytes) -> None:
        """A frame has arrived from the link's owner."""
        if self.node is not None and not link.closed:
            self.node.on_request(link, op, request_id, payload)
            self.node.turn_end()

    def forget(self, link: "Link") -> None:
        """The link is closed."""
        if link in self._links:
            self._links.remove(link)
            if self.node is not None:
                self.node.on_closed(link)

    def _cut_links(self) -> None:
        for link in list(self._links):
            link.close("the engine has ended")

    def _soon(self, call: Callable[[Node], None]) -> None:
        incarnation = self.incarnation

        def run() -> None:
            if self.node is not None and self.incarnation == incarnation:
                call(self.node)

        self.world.after(0, run)

    def _wake_at(self, due_ms: int) -> None:
        self._woken_ms = due_ms
        incarnation = self.incarnation

        def tick() -> None:
            if self.node is None or self.incarnation != incarnation or self._woken_ms != due_ms:
                return
            next_ms = self.node.tick(self.env.clock.monotonic_ms())
            if next_ms is not None:
                self._wake_at(next_ms)

        self.world.at(due_ms, tick)


class Owner(Protocol):
    """The client's end of a link."""

    name: str

    def on_ready(self, link: "Link") -> None:
        """The link is authenticated."""

    def on_unasked(self, link: "Link", op: int, payload: bytes) -> None:
        """The engine has sent a frame that answers no request."""

    def on_closed(self, link: "Link") -> None:
        """The link is closed. Requests without an answer may have been served or not."""


class Link:
    """A link in memory: the node's `Peer` on one side, the owner's requests on the other.

    Frames take a few milliseconds each way and keep their order. A closed link delivers no frame, not even frames in
    transit.
    """

    def __init__(self, engine: Engine, owner: Owner) -> None:
        assert engine.node is not None
        self.engine, self.world, self.owner = engine, engine.world, owner
        self.closed = False
        self._answers: dict[int, Answer] = {}
        self._number = 0
        self._there_ms = self._back_ms = 0
        self.peer_state = engine.node.on_connected(self)
        self.ask(layout.HELLO, json.dumps({"version": layout.VERSION, "role": owner.name}).encode(), self._on_hello)

    # -- the owner's side

    def ask(self, op: int, payload: bytes, on_answer: Answer) -> int:
        """Send a request; `on_answer(code, payload)` is called when the answer has arrived."""
        self._number += 1
        self._answers[self._number] = on_answer
        self.tell(op, payload, self._number)
        return self._number

    def tell(self, op: int, payload: bytes, request_id: int = 0) -> None:
        """Send a frame without an answer."""
        self.world.note(self.owner.name, self.engine.name, op, request_id, payload)
        self._there_ms = max(self._there_ms, self.world.now_ms + self.world.random.randint(0, LATENCY_MS_MAX))
        self.world.at(self._there_ms, lambda: self.engine.deliver(self, op, request_id, payload))

    def _on_hello(self, code: int, payload: bytes) -> None:
        nonce = bytes.fromhex(json.loads(payload)["nonce"])
        proof = hmac.new(KEY, layout.AUTH_CONTEXT + nonce, hashlib.sha256).digest()
        self.ask(layout.AUTH, proof, self._on_authenticated)

    def _on_authenticated(self, code: int, payload: bytes) -> None:
        assert code == layout.OK
        self.owner.on_ready(self)

    def _arrive(self, op: int, request_id: int, code: int, payload: bytes) -> None:
        if self.closed:
            return
        self.world.note(self.engine.name, self.owner.name, op, request_id, code, payload)
        if request_id == layout.UNASKED:
            self.owner.on_unasked(self, op, payload)
        else:
            self._answers.pop(request_id)(code, payload)

    # -- the node's side

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        if not self.closed:
            payload = b"".join(parts)
            self._back_ms = max(self._back_ms, self.world.now_ms + self.world.random.randint(0, LATENCY_MS_MAX))
            self.world.at(self._back_ms, lambda: self._arrive(op, request_id, code, payload))

    def trust(self) -> None:
        pass

    def close(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self.world.note(self.owner.name, self.engine.name, "closed", reason)
            self.engine.forget(self)
            self.world.after(0, lambda: self.owner.on_closed(self))

    def close_when_sent(self) -> None:
        self.world.after(LATENCY_MS_MAX, lambda: self.close("done"))
