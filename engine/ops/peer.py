"""The node's view of one link connection: a way to send frames, and the state that operations keep per connection."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine.delivery.native import FORM
from engine.delivery.reply_window import ReplyWindow
from engine.link.acknowledgement import RELEASE, AckRanges
from engine.link.native import leases_of_parts

PendingAnswer = tuple[Callable[[], None], Callable[[], None]]
"""(withdraw, answer): forgets a waiting request; sends its answer with the result so far."""


class PeerState:
    """State of one connection.

    Attributes:
        role: the peer's, as its HELLO said; it holds once the peer has authenticated.
        operations: that the peer may ask for; none before it has authenticated.
        lane: names the lane of a proxy whose link this is, over all its links; empty: it is none.
        is_greeted: a HELLO or AUTH has come. is_refused: one of them was refused, so the connection closes.
        greeting: digest of HELLO's question and answer while AUTH is awaited; empty: none is.
        deadline_ms: the peer has to be authenticated by then (monotonic clock).
        waiting: request id -> functions that withdraw and answer the waiting request.
        window: what the peer can take of messages; the connection counts what it sends and says when it is full.
        unread: answers with messages that may still be in the connection's output, oldest first: position of their
            end, group, ranges that give the messages back.
        unsynced: APPENDs whose answers wait for a sync; only `engine.ops.append` counts them here.
        on_stored: takes epoch, end and synced position of a slave's STORED as it comes; None: it is a request. The native
            form of connections calls it, and makes a request of what it raises for.
        is_held: output waits in the connection until what it shows of the log is confirmed.
    """

    __slots__ = (
        "authenticated", "deadline_ms", "greeting", "is_greeted", "is_held", "is_refused", "lane", "name", "on_stored",
        "operations", "role", "unread", "unsynced", "waiting", "window",
    )  # fmt: skip

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.authenticated = self.is_greeted = self.is_refused = False
        self.operations: frozenset[int] = frozenset()
        self.greeting = b""
        self.name = self.role = self.lane = ""
        self.waiting: dict[int, PendingAnswer] = {}
        self.unread: deque[tuple[int, str, AckRanges]] = deque()
        self.unsynced = 0
        self.is_held = False
        self.on_stored: Callable[[int, int, int], None] | None = None
        self.window: ReplyWindow = FORM.ReplyWindow()


class Peer(Protocol):
    """One link connection: a socket in production, a recorder of frames in simulations."""

    peer_state: PeerState

    @property
    def queued(self) -> int:
        """Position after all output so far."""

    @property
    def backlog(self) -> int:
        """Bytes of output that have not left. When the connection ends, they were never received."""

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        """Queue one frame whose payload is the parts in order. Does nothing once the connection is closed."""

    def trust(self) -> None:
        """The peer has proved that it knows its role's key: accept all operations, and frames of full size.

        From here on, its output is held where the node has an OutputHold for its role. AUTH's answer is queued before.
        """

    def close(self, reason: str) -> None:
        """Close at once."""

    def close_when_sent(self) -> None:
        """Close after the last queued answer has been sent."""


def note_unread(peer: Peer, group: str, pieces: list[bytes]) -> None:
    """Note an answer with messages that was queued just now, when it may stay in the output after the turn.

    Args:
        pieces: of the answer, in parts.
    """
    unread, left = peer.peer_state.unread, peer.queued - peer.backlog
    while unread and unread[0][0] <= left:
        unread.popleft()
    unread.append((peer.queued, group, AckRanges(leases_of_parts(pieces, RELEASE))))
