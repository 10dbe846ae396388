"""PULL: acknowledgements in, messages out; a pull may wait for messages."""

from engine.delivery.delivery import Delivery
from engine.delivery.pull import Pull
from engine.delivery.reply_window import SMALL_BYTES
from engine.env.native import Durations, NodeClock
from engine.link import layout
from engine.link.codes import AT_BOUND, NO_ROOM, OK
from engine.link.pull import decode_request, encode_answer
from engine.ops.peer import Peer, note_unread
from engine.ops.waiting import WaitingRequests


class PullMessages:
    """Serves PULL.

    Attributes:
        times: durations of serving a PULL: its acknowledgements, and the search for messages. Not the wait for them.
    """

    def __init__(self, delivery: Delivery, clock: NodeClock, waiting: WaitingRequests) -> None:
        self._delivery, self._clock, self._waiting, self._on_wait = delivery, clock, waiting, waiting.on_wait
        self.times = Durations()

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Serve the pull, now or when messages arrive or its time is over. Raises PayloadError."""
        began_ns = self._clock.monotonic_ns()
        request = decode_request(payload)
        if self._waiting.stopping:
            request.max_messages = 0

        def answer(pull: Pull) -> None:
            peer.peer_state.waiting.pop(request_id, None)
            parts = encode_answer(pull.ack_codes, pull.piece_count, pull.pieces)
            code = OK
            if not pull.piece_count:
                code = AT_BOUND if self._delivery.is_at_bound(pull) else NO_ROOM if pull.is_short else OK
            peer.send_frame(layout.PULL, request_id, code, parts)
            if pull.piece_count and (peer.peer_state.is_held or peer.backlog > SMALL_BYTES):
                note_unread(peer, request.group, pull.pieces)

        pull = self._delivery.pull(request, began_ns // 1_000_000, answer, peer.peer_state.window)
        if pull.tick:
            self._waiting.add(peer, request_id, lambda: self._delivery.cancel(pull), lambda: answer(pull))
        self._on_wait()  # leases expire, too
        self.times.since(self._clock, began_ns, 1)

    def on_closed(self, peer: Peer) -> None:
        """Give back what the connection's output still held: no client has seen it, so it was no attempt."""
        unread, left = peer.peer_state.unread, peer.queued - peer.backlog
        for end, group, ranges in unread:
            if end > left:
                self._delivery.release(group, list(ranges), self._clock.monotonic_ms())
        unread.clear()
