"""PULL: acknowledgements in, messages out; a pull may wait for messages."""

from engine.delivery.delivery import Delivery
from engine.delivery.pull import Pull
from engine.env.native import NodeClock
from engine.link import layout
from engine.link.pull import decode_request, encode_answer
from engine.ops.peer import Peer
from engine.ops.waiting import WaitingRequests


class PullMessages:
    """Serves PULL."""

    def __init__(self, delivery: Delivery, clock: NodeClock, waiting: WaitingRequests) -> None:
        self._delivery, self._clock, self._waiting, self._on_wait = delivery, clock, waiting, waiting.on_wait

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Serve the pull, now or when messages arrive or its time is over. Raises PayloadError."""
        request = decode_request(payload)
        if self._waiting.stopping:
            request = request._replace(max_messages=0)

        def answer(pull: Pull) -> None:
            peer.peer_state.waiting.pop(request_id, None)
            parts = encode_answer(pull.ack_codes, pull.piece_count, pull.pieces)
            peer.send_frame(layout.PULL, request_id, layout.OK, parts)

        pull = self._delivery.pull(request, self._clock.monotonic_ms(), answer)
        if pull.tick:
            self._waiting.add(peer, request_id, lambda: self._delivery.cancel(pull), lambda: answer(pull))
        self._on_wait()  # leases expire, too
