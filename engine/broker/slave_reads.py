"""Reads that a slave serves: by position, look-ups, and two verbs of operators. Design: docs/design/0033-reads-by-slaves.md."""

from collections import deque
from collections.abc import Callable

from engine.delivery.topic_uses import TopicUses
from engine.env.native import NodeClock
from engine.link import layout
from engine.log import Log
from engine.ops.admin_topics import list_topics
from engine.ops.checks import json_answer, json_object, shown
from engine.ops.errors import RequestError
from engine.ops.lookup import LookUps
from engine.ops.peer import Peer
from engine.ops.read import PositionReads
from engine.ops.waiting import WaitingRequests
from engine.ops.window import window_of


class ReadingPeer:
    """A link as the operations see it: their answers leave once what they may show is confirmed."""

    def __init__(self, peer: Peer, reads: "SlaveReads") -> None:
        self._peer, self._reads = peer, reads
        self.peer_state = peer.peer_state

    @property
    def queued(self) -> int:
        return self._peer.queued

    @property
    def backlog(self) -> int:
        return self._peer.backlog

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        self._reads.answer(self._peer, op, request_id, code, parts)

    def trust(self) -> None:
        self._peer.trust()

    def close(self, reason: str) -> None:
        self._peer.close(reason)

    def close_when_sent(self) -> None:
        self._peer.close_when_sent()


class SlaveReads:
    """The operations over one open log of a slave. They lease, store and move nothing.

    Args:
        in_loop: runs a function in the loop's thread; callable from the thread of the searches.
    Attributes:
        answers: those that wait until what they may show is confirmed, in the order of the log's ends.
    """

    def __init__(self, store: Log, clock: NodeClock, in_loop: Callable[[Callable[[], None]], None]) -> None:
        self._store = store
        self._readable_to = 0
        self.answers: deque[tuple[int, Peer, int, int, int, list[bytes]]] = deque()
        self._waiting = WaitingRequests(lambda: None)
        self._reads = PositionReads(store, clock, self._waiting, TopicUses())
        look_ups = LookUps(store, self._waiting, in_loop)
        self._handlers: dict[int, Callable[[Peer, int, bytes], None]] = {
            layout.READ: self._reads.handle,
            layout.LOOK_UP_ID: look_ups.by_id,
            layout.LOOK_UP_KEY: look_ups.by_key,
            layout.ADMIN: self._administer,
            layout.CANCEL: self._waiting.cancel,
            layout.WINDOW: _raise_window,
        }

    @property
    def held(self) -> int:
        """Number of answers that wait until what they may show is confirmed."""
        return len(self.answers)

    def serve(self, peer: Peer, op: int, request_id: int, payload: bytes, readable_to: int) -> bool:
        """Serve one request, now or later; False: it is the master's. Raises RequestError.

        Args:
            readable_to: position up to which the master has confirmed the log; 0: nothing may be read now.
        """
        self.confirm(readable_to)
        handler = self._handlers.get(op) if readable_to else None
        if handler is None:
            return False
        handler(ReadingPeer(peer, self), request_id, payload)
        return True

    def answer(self, peer: Peer, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        """Send an answer once all that the log has now is confirmed."""
        end = self._store.end_position
        if end <= self._readable_to:
            peer.send_frame(op, request_id, code, parts)
        else:
            self.answers.append((end, peer, op, request_id, code, parts))

    def confirm(self, readable_to: int) -> None:
        """Send the answers that show nothing above this position. With 0 they are refused: the slave does not follow."""
        self._readable_to = readable_to
        while self.answers and (not readable_to or self.answers[0][0] <= readable_to):
            _, peer, op, request_id, code, parts = self.answers.popleft()
            if readable_to:
                peer.send_frame(op, request_id, code, parts)
            else:
                peer.send_frame(op, request_id, layout.NOT_MASTER, [b"this broker follows no master"])

    def on_closed(self, peer: Peer) -> None:
        """Withdraw what waits for a link that is closed."""
        self.answers = deque(each for each in self.answers if each[1] is not peer)
        self._waiting.drop(peer)

    def turn_end(self) -> None:
        """Records were fetched from the disk, or copied: serve the reads that wait for them."""
        if self._reads.waiting_queues:
            self._reads.on_woken(self._store.take_woken())

    def on_time(self, now_ms: int) -> None:
        """Answer the reads whose time is over."""
        self.turn_end()
        self._reads.on_time(now_ms)

    def _administer(self, peer: Peer, request_id: int, payload: bytes) -> None:
        request = json_object(payload, 'ADMIN: send a JSON object with "verb"')
        verb = request.get("verb")
        if verb == "topics":
            answer = list_topics(self._store, request)
        elif verb == "status":
            answer = {
                "log_id": self._store.log_id.hex(),
                "epoch": self._store.epoch,
                "end_position": self._store.end_position,
                "durable_position": self._store.durable_position,
                "look_up": list(self._store.look_up.families),
            }
        else:
            raise RequestError(f"verb {shown(verb)}: the master of the group serves it", layout.NOT_MASTER)
        peer.send_frame(layout.ADMIN, request_id, layout.OK, json_answer(answer))


def _raise_window(peer: Peer, request_id: int, payload: bytes) -> None:
    peer.peer_state.window.raise_to(window_of(payload))
