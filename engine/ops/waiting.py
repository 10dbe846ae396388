"""Requests that are answered later, and CANCEL, which answers one of them at once."""

from collections.abc import Callable, Iterable

from engine.ops.peer import Peer


class WaitingRequests:
    """Answers that peers wait for.

    Args:
        on_wait: called when an answer may depend on time, so that the node looks at its clocks.

    Attributes:
        stopping: the node stops; no further request may wait.
    """

    def __init__(self, on_wait: Callable[[], None]) -> None:
        self.on_wait = on_wait
        self.stopping = False

    def add(self, peer: Peer, request_id: int, withdraw: Callable[[], None], answer: Callable[[], None]) -> None:
        """The request is answered later by `answer()`, unless `withdraw()` is called before."""
        peer.peer_state.waiting[request_id] = (withdraw, answer)

    def remove(self, peer: Peer, request_id: int) -> None:
        """The request has been answered."""
        peer.peer_state.waiting.pop(request_id, None)

    def cancel(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """CANCEL: withdraw the request of that id and answer it with its result so far."""
        pending = peer.peer_state.waiting.pop(request_id, None)
        if pending is not None:
            withdraw, answer = pending
            withdraw()
            answer()

    def drop(self, peer: Peer) -> None:
        """The connection is closed: withdraw its requests, so that nothing is leased to it."""
        waiting, peer.peer_state.waiting = peer.peer_state.waiting, {}
        for withdraw, _ in waiting.values():
            withdraw()

    def stop(self, peers: Iterable[Peer]) -> None:
        """Answer all waiting requests with their results so far. From now on no request waits."""
        self.stopping = True
        for peer in peers:
            waiting, peer.peer_state.waiting = peer.peer_state.waiting, {}
            for withdraw, answer in waiting.values():
                withdraw()
                answer()
