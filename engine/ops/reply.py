"""LISTEN, REPLY, FORWARDED and OUTCOME: request-reply on the link."""

from collections.abc import Callable

from common.reply_token import TOKEN_SIZE, instance_of
from engine.env.native import NodeClock
from engine.link import layout
from engine.ops.errors import RequestError
from engine.ops.peer import Peer
from engine.replies.exchange import Exchange


class ReplyOps:
    """Serves the four operations.

    Args:
        on_wait: called when a reply waits for its confirmation, so that the node looks at its clocks.
    """

    def __init__(self, exchange: Exchange, clock: NodeClock, on_wait: Callable[[], None]) -> None:
        self._exchange, self._clock, self._on_wait = exchange, clock, on_wait

    def listen(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """LISTEN: send replies to calls of this proxy instance to this peer."""
        if len(payload) != layout.INSTANCE.size:
            raise RequestError(f"LISTEN: {len(payload)} bytes: send the {layout.INSTANCE.size} bytes of an instance")
        self._exchange.listen(peer, *layout.INSTANCE.unpack(payload))
        peer.send_frame(layout.LISTEN, request_id, layout.OK, [])

    def reply(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """REPLY: forward it; answered when the waiting proxy confirms."""
        instance = instance_of(payload) if len(payload) > TOKEN_SIZE else None
        if instance is None:
            raise RequestError("REPLY: no valid token: send the request's token, then the reply")
        if self._exchange.reply(peer, request_id, instance, payload, self._clock.monotonic_ms()):
            self._on_wait()

    def forwarded(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """FORWARDED: confirms a forwarded reply. It has no answer of its own."""
        if len(payload) != layout.FORWARDED_BODY.size:
            raise RequestError("FORWARDED: send the number of a reply, then a code")
        self._exchange.confirmed(peer, *layout.FORWARDED_BODY.unpack(payload))

    def outcome(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """OUTCOME: the reason why a request got no reply."""
        code = self._exchange.requests.outcome(payload)
        peer.send_frame(layout.OUTCOME, request_id, layout.OK, [layout.U16.pack(code)])
