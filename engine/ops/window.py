"""WINDOW: the peer says how many bytes of answers with messages it can take."""

from engine.delivery.delivery import Delivery
from engine.delivery.reply_window import NO_LIMIT
from engine.env.native import NodeClock
from engine.link.integers import U64
from engine.ops.errors import RequestError
from engine.ops.peer import Peer


class ReplyWindows:
    """Serves WINDOW, and pulls that waited for room. See engine/delivery/reply_window.py."""

    def __init__(self, delivery: Delivery, clock: NodeClock) -> None:
        self._delivery, self._clock = delivery, clock

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Raise the peer's limit. There is no answer. Raises RequestError."""
        peer.peer_state.window.raise_to(window_of(payload))
        self.on_room(peer)

    def on_room(self, peer: Peer) -> None:
        """The peer's connection or its window has room: serve the pulls that wait for it."""
        if peer.peer_state.window.waiting:
            self._delivery.on_room(peer.peer_state.window, self._clock.monotonic_ms())


def window_of(payload: bytes) -> int:
    """The position in a WINDOW, up to which its sender takes answers. Raises RequestError."""
    if len(payload) != U64.size:
        raise RequestError(f"WINDOW: {len(payload)} bytes: send a position of {U64.size} bytes")
    return min(U64.unpack(payload)[0], NO_LIMIT)
