"""A broker's end of a link: the `Peer` of its node or standby, as `engine.server.serve` makes it."""

from collections import deque
from typing import TYPE_CHECKING

from engine.link import layout
from engine.ops.output_hold import OutputHold, hold_of
from tests.sim.group.network import End, framed, parsed

if TYPE_CHECKING:
    from tests.sim.group.broker import Broker


class LinkPeer:
    """One link. `queued` counts frames; those that are held are the backlog."""

    def __init__(self, broker: "Broker", end: End) -> None:
        self._broker, self._end, self._node = broker, end, broker.served
        self.closed = False
        self.queued = 0
        self._held: deque[tuple[int, int, int, bytes, int]] = deque()
        self._hold: OutputHold | None = None
        end.on_frame, end.on_closed = self._on_frame, self._on_end
        self.peer_state = self._node.on_connected(self)

    @property
    def backlog(self) -> int:
        """Frames that have not left."""
        return len(self._held)

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        if self.closed:
            return
        self.queued += 1
        life = None if self._hold is None or self._broker.core is None else self._broker.core.life
        end = 0 if life is None else life.appender.end_position
        self._held.append((op, request_id, code, b"".join(parts), end))
        self._end.queued_ms[request_id] = self._broker.world.now_ms
        if self._hold is None or self._hold.note(self, self.queued):
            self.release(self.queued)

    def release(self, position: int) -> None:
        while self._held and self.queued - len(self._held) < position and not self.closed:
            op, request_id, code, payload, end = self._held.popleft()
            self._broker.cluster.checks.leaves(self._broker, op, code, payload, end)
            self._end.send(framed(op, request_id, code, payload))

    def trust(self) -> None:
        self._hold = hold_of(self._node.output_hold, self.peer_state)
        self._broker.has_new_link = True

    def close(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self._broker.peers.pop(self, None)
            self._end.close()
            self._node.on_closed(self)

    def close_when_sent(self) -> None:
        self._broker.later(1, lambda: self.close("done"))

    def _on_end(self) -> None:
        self.close("closed by the peer")

    def _on_frame(self, frame: bytes) -> None:
        op, request_id, _, payload = parsed(frame)
        if not self.closed:
            self._node.on_request(self, op, request_id, payload)
        if self._broker.looped is not None and op in (layout.APPEND, layout.RESEND):
            self._broker.looped.turn_end()
