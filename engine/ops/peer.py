"""The node's view of one link connection: a way to send frames, and the state that operations keep per connection."""

from collections.abc import Callable
from typing import Protocol

PendingAnswer = tuple[Callable[[], None], Callable[[], None]]
"""(withdraw, answer): forgets a waiting request; sends its answer with the result so far."""


class PeerState:
    """State of one connection.

    Attributes:
        deadline_ms: the peer has to be authenticated by then (monotonic clock).
        waiting: request id -> functions that withdraw and answer the waiting request.
        unsynced: APPENDs whose answers wait for a sync; only `engine.ops.append` counts them here.
    """

    __slots__ = ("authenticated", "deadline_ms", "name", "nonce", "unsynced", "waiting")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.authenticated = False
        self.nonce = b""
        self.name = ""
        self.waiting: dict[int, PendingAnswer] = {}
        self.unsynced = 0


class Peer(Protocol):
    """One link connection: a socket in production, a recorder of frames in simulations."""

    peer_state: PeerState

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        """Queue one frame whose payload is the parts in order. Does nothing once the connection is closed."""

    def trust(self) -> None:
        """The peer has proved that it knows the cluster key: accept all operations, and frames of full size."""

    def close(self, reason: str) -> None:
        """Close at once."""

    def close_when_sent(self) -> None:
        """Close after the last queued answer has been sent."""
