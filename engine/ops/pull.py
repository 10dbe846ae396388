"""PULL: acknowledgements in, messages out; a pull may wait for messages."""

from engine.delivery.delivery import Delivery
from engine.delivery.pull import Pull
from engine.env.native import Clock
from engine.link import layout
from engine.ops.peer import Peer
from engine.ops.waiting import WaitingRequests
from engine.server.codec import decode_pull, encode_pull_answer


class PullMessages:
    """Serves PULL."""

    def __init__(self, delivery: Delivery, clock: Clock, waiting: WaitingRequests) -> None:
        self._delivery, self._clock, self._waiting, self._on_wait = delivery, clock, waiting, waiting.on_wait

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Serve the pull, now or when messages arrive or its time is over."""
        request = decode_pull(payload)
        if self._waiting.stopping:
            request = request._replace(max_messages=0)

        def answer(pull: Pull) -> None:
            peer.peer_state.waiting.pop(request_id, None)
            peer.send_frame(layout.PULL, request_id, layout.OK, encode_pull_answer(pull))

        pull = self._delivery.pull(request, self._clock.monotonic_ms(), answer)
        if pull.tick:
            self._waiting.add(peer, request_id, lambda: self._delivery.cancel(pull), lambda: answer(pull))
        self._on_wait()  # leases expire, too
