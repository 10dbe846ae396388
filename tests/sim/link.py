"""Links in memory: the node's `Peer` on one side, the owner's requests on the other."""

import json
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from engine.link import layout
from engine.link.proof import ADMIN_ROLE, NONCE_SIZE, client_proof, engine_proof, transcript
from engine.ops.output_hold import OutputHold, hold_of

if TYPE_CHECKING:
    from tests.sim.engine import Engine

KEY, ADMIN_SECRET = b"k" * 32, b"a" * 32
LATENCY_MS_MAX = 3
Answer = Callable[[int, bytes], None]


class Owner(Protocol):
    """The client's end of a link. `role`: "admin" is that of an operator."""

    name: str
    role: str

    def on_ready(self, link: "Link") -> None:
        """The link is authenticated."""

    def on_unasked(self, link: "Link", op: int, payload: bytes) -> None:
        """The engine has sent a frame that answers no request."""

    def on_closed(self, link: "Link") -> None:
        """The link is closed. Requests without an answer may have been served or not."""

    def on_sending(self, link: "Link", op: int, code: int, payload: bytes) -> None:
        """The engine sends a frame, which may or may not arrive."""


class OpenRequest(NamedTuple):
    """A request without an answer."""

    op: int
    sent_ms: int
    on_answer: Answer


class Link:
    """One link.

    Frames take a few milliseconds each way and keep their order. A closed link delivers no frame, not even frames in
    transit.

    Attributes:
        slow_ms: how long the owner takes to read a frame.
        history_id: id of the engine's log and epoch of its topic ids, as HELLO told them.
    """

    def __init__(self, engine: "Engine", owner: Owner) -> None:
        assert engine.node is not None
        self.engine, self.world, self.owner = engine, engine.world, owner
        self.closed = False
        self.slow_ms = 0
        self.history_id = "", ""
        self.open: dict[int, OpenRequest] = {}
        self._random = self.world.random_of(f"link-{owner.name}-{engine.incarnation}-{self.world.now_ms}")
        self._number = 0
        self._there_ms = self._back_ms = 0
        self._hold: OutputHold | None = None
        self._held: deque[tuple[int, int, int, bytes]] = deque()
        self.queued = 0
        self.peer_state = engine.node.on_connected(self)
        nonce = self._random.randbytes(NONCE_SIZE).hex()
        self._greeting = json.dumps({"version": layout.VERSION, "role": owner.role, "nonce": nonce}).encode()
        self.ask(layout.HELLO, self._greeting, self._on_hello)

    # -- the owner's side

    def ask(self, op: int, payload: bytes, on_answer: Answer) -> int:
        """Send a request; `on_answer(code, payload)` is called when the answer has arrived."""
        self._number += 1
        self.open[self._number] = OpenRequest(op, self.world.now_ms, on_answer)
        self.tell(op, payload, self._number)
        return self._number

    def tell(self, op: int, payload: bytes, request_id: int = 0) -> None:
        """Send a frame without an answer."""
        self.world.note(self.owner.name, self.engine.name, op, request_id, payload)
        self._there_ms = max(self._there_ms, self.world.now_ms + self._random.randint(0, LATENCY_MS_MAX))
        self.world.at(self._there_ms, lambda: self.engine.deliver(self, op, request_id, payload))

    def _on_hello(self, code: int, payload: bytes) -> None:
        hello = json.loads(payload)
        self.history_id = hello["log_id"], hello["epoch"]
        key = ADMIN_SECRET if self.owner.role == ADMIN_ROLE else KEY
        greeting = transcript(self._greeting, payload)

        def on_authenticated(code: int, proof: bytes) -> None:
            assert (code, proof) == (layout.OK, engine_proof(key, greeting))
            self.owner.on_ready(self)

        self.ask(layout.AUTH, client_proof(key, greeting), on_authenticated)

    def _arrive(self, op: int, request_id: int, code: int, payload: bytes) -> None:
        if self.closed:
            return None
        self.world.note(self.engine.name, self.owner.name, op, request_id, code, payload)
        if request_id == layout.UNASKED:
            return self.owner.on_unasked(self, op, payload)
        request = self.open.pop(request_id, None)
        assert request is not None, f"{self.owner.name}: request {request_id} (operation {op}) was answered twice"
        return request.on_answer(code, payload)

    # -- the node's side

    @property
    def backlog(self) -> int:
        """Frames that are held; `queued` counts frames, too. All others leave at once."""
        return len(self._held)

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        if self.closed:
            return
        self.queued += 1
        self._held.append((op, request_id, code, b"".join(parts)))
        if self._hold is None or self._hold.note(self, self.queued):
            self.release(self.queued)
        else:
            self.engine.confirm_later()

    def release(self, position: int) -> None:
        while self._held and self.queued - len(self._held) < position and not self.closed:
            self._leave(*self._held.popleft())

    def _leave(self, op: int, request_id: int, code: int, payload: bytes) -> None:
        self.owner.on_sending(self, op, code, payload)
        delay_ms = self._random.randint(0, LATENCY_MS_MAX) + self.slow_ms
        self._back_ms = max(self._back_ms, self.world.now_ms + delay_ms)
        self.world.at(self._back_ms, lambda: self._arrive(op, request_id, code, payload))

    def trust(self) -> None:
        assert self.engine.node is not None
        self._hold = hold_of(self.engine.node.output_hold, self.peer_state)

    def close(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self.world.note(self.owner.name, self.engine.name, "closed", reason)
            self.engine.forget(self)
            self.world.after(0, lambda: self.owner.on_closed(self))

    def close_when_sent(self) -> None:
        self.world.after(LATENCY_MS_MAX, lambda: self.close("done"))
