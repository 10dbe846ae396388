"""The present link of each lane of a proxy. A later link ends the earlier one. Design: docs/design/0031-switch-over.md.

A lane that opens another link sends again over it what has no answer. What it sent before may still be in the network,
and would be stored a second time.
"""

from engine.ops.peer import Peer


class LaneLinks:
    """Links whose HELLO names a lane."""

    def __init__(self) -> None:
        self._links: dict[str, Peer] = {}

    def opened(self, peer: Peer) -> None:
        """The peer has authenticated. Closes the earlier link of its lane; nothing more is taken from that."""
        lane = peer.peer_state.lane
        if not lane:
            return
        before = self._links.get(lane)
        self._links[lane] = peer
        if before is not None:
            before.close("its lane has another link")

    def closed(self, peer: Peer) -> None:
        """The peer's link is closed."""
        lane = peer.peer_state.lane
        if lane and self._links.get(lane) is peer:
            del self._links[lane]
