"""Serving while a broker does not lead: greetings, slaves and controllers, and reads of clients.

Clients' other requests are sent to the master.

The links of slaves and controllers stay here when the broker begins to lead.
"""

import logging
from collections.abc import Callable, Mapping

from common.limited_log import LimitedLog
from engine.broker.slave_reads import SlaveReads
from engine.env.native import NodeClock
from engine.errors import EngineError
from engine.link import layout
from engine.link.errors import LinkError
from engine.log import Log
from engine.ops.errors import RequestError
from engine.ops.handshake import Handshake
from engine.ops.peer import Peer, PeerState
from engine.ops.roles import LinkKeys
from engine.ops.stored import StoredWaits

limited = LimitedLog(logging.getLogger("penstock.engine"))
AUTHENTICATE_MS = 10_000


class Standby:
    """In the place of a `Node`; without a log, for the reference form of links only.

    Args:
        identity: fields of HELLO's answer.
        handlers: of slaves' and controllers' operations.
        refusal: returns the sentence for clients.
        on_closed: called with each link that is closed.
        readable_to: returns the position up to which clients may read the log; 0: they may not read it now.

    Attributes:
        handshake: see `Node`.
        store: the open log, which refuses appends.
        reads: serves reads of clients from this log; None: there is none.
        reads_served: requests so far, over all openings of the log.
    """

    store: Log
    stored: StoredWaits

    def __init__(
        self, keys: LinkKeys, clock: NodeClock, random_bytes: Callable[[int], bytes],
        identity: Callable[[], Mapping[str, object]], handlers: Mapping[int, Callable[[Peer, int, bytes], None]],
        refusal: Callable[[], str], on_closed: Callable[[Peer], None], readable_to: Callable[[], int],
    ) -> None:  # fmt: skip
        self._readable_to = readable_to
        self.reads: SlaveReads | None = None
        self.clock, self._handlers, self._refusal, self._told_closed = clock, handlers, refusal, on_closed
        self._strangers: dict[Peer, None] = {}
        self.handshake = Handshake(keys, identity, random_bytes, lambda peer: self._strangers.pop(peer, None))
        self.output_hold = self.append = None
        self.reads_served = 0

    def attach(self, store: Log, reads: SlaveReads) -> None:
        """Read from this log from now on. Clients' links of an earlier one have to be closed."""
        self.store, self.stored, self.reads = store, StoredWaits(store), reads

    def detach(self) -> None:
        """The log is about to be closed."""
        self.reads = None

    def confirm(self) -> None:
        """Let out the answers that show only what is confirmed by now."""
        if self.reads is not None and self.reads.held:
            self.reads.confirm(self._readable_to())

    def on_connected(self, peer: Peer) -> PeerState:
        """See `Node.on_connected`."""
        self._strangers[peer] = None
        return PeerState(self.clock.monotonic_ms() + AUTHENTICATE_MS)

    def on_closed(self, peer: Peer) -> None:
        """See `Node.on_closed`."""
        self._strangers.pop(peer, None)
        if self.reads is not None:
            self.reads.on_closed(peer)
        self._told_closed(peer)

    def on_room(self, peer: Peer) -> None:
        """Nothing waits for room here."""

    def on_request(self, peer: Peer, op: int, request_id: int, payload: bytes) -> None:
        """Serve one request. What the peer's role may not ask for is the handshake's."""
        try:
            if op not in peer.peer_state.operations:
                self.handshake.on_request(peer, op, request_id, payload)
                return
            handler = self._handlers.get(op)
            if handler is None and self._serves_read(peer, op, request_id, payload):
                return
            if handler is None and request_id == layout.UNASKED:
                return
            if handler is None:
                raise RequestError(self._refusal(), layout.NOT_MASTER)
            handler(peer, request_id, payload)
        except (RequestError, EngineError) as error:
            peer.send_frame(op, request_id, error.code, [str(error).encode()])
        except LinkError as error:
            peer.send_frame(op, request_id, layout.INVALID, [str(error).encode()])
        except Exception:
            limited.exception("link=%s op=%d: request failed", peer.peer_state.name, op)
            peer.send_frame(op, request_id, layout.UNAVAILABLE, [b"internal error: the engine's log has the details"])

    def _serves_read(self, peer: Peer, op: int, request_id: int, payload: bytes) -> bool:
        """Serve a read of a client; False: it is none, or this log may not be read now. Raises as `on_request`."""
        if self.reads is None or not self.reads.serve(peer, op, request_id, payload, self._readable_to()):
            return False
        self.reads_served += 1
        return True

    def on_appended(self, woken: list[tuple[int, int]]) -> None:
        """Nothing is appended here."""

    def release_waiting(self) -> None:
        """Nothing that waits has to be answered."""

    def turn_end(self) -> None:
        """Records were fetched from the disk: serve the reads that wait for them."""
        if self.reads is not None:
            self.reads.turn_end()

    def tick(self, now_ms: int) -> None:
        """Do nothing: check_deadlines() is called often."""

    def check_deadlines(self) -> None:
        """Close the links that have not authenticated in time, and answer the reads whose time is over."""
        now_ms = self.clock.monotonic_ms()
        self.confirm()
        if self.reads is not None:
            self.reads.on_time(now_ms)
        for peer in [each for each in self._strangers if each.peer_state.deadline_ms <= now_ms]:
            peer.close("did not authenticate in time")
