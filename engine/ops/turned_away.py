"""Requests of clients to a node that hands over to another broker: refused, so that they are asked again there."""

from collections.abc import Callable, Mapping

from engine.link import layout
from engine.ops.errors import RequestError
from engine.ops.peer import Peer

Handler = Callable[[Peer, int, bytes], None]
SERVED = frozenset({layout.CANCEL, layout.WINDOW})
"""Of requests that were taken before. They change nothing that is stored."""


def turned_away(handlers: Mapping[int, Handler], sentence: str, kept: Mapping[int, Handler]) -> dict[int, Handler]:
    """Handlers that refuse clients with NOT_MASTER and the sentence. `kept`: those of slaves and controllers."""

    def refuse(peer: Peer, request_id: int, payload: bytes) -> None:
        if request_id != layout.UNASKED:
            raise RequestError(sentence, layout.NOT_MASTER)

    found = {op: handler if op in SERVED else refuse for op, handler in handlers.items()}
    return {**found, **kept}
