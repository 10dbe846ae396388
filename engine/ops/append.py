"""APPEND frame by frame: the reference for `engine/server/_serve.pyx`.

The native form stages the frames of a loop turn and writes them once.
"""

import logging
from collections.abc import Callable
from functools import partial

from common.limited_log import LimitedLog
from engine.env.native import Durations, NodeClock
from engine.errors import EngineError
from engine.link import layout
from engine.log import Log
from engine.ops.errors import RequestError
from engine.ops.peer import Peer
from engine.ops.stored import StoredWaits

log = LimitedLog(logging.getLogger("penstock.engine"))
HEAD_RULE = "APPEND: durability 1..4, then the batches"
COUNT_RULE = "APPEND: batch count 0 or larger than the payload allows"


class Append:
    """Appends of all peers, and their totals.

    Args:
        on_appended: called after records were appended, so that waiting pulls get them.
    Attributes:
        times: durations from the arrival of an APPEND or RESEND to its answer.
    """

    def __init__(self, store: Log, clock: NodeClock, on_appended: Callable[[], None], stored: StoredWaits) -> None:
        self._store, self._clock, self._on_appended, self._stored = store, clock, on_appended, stored
        self.appends = self.batches = self.messages = self.bytes = 0
        self.times, self.now_ns = Durations(), clock.monotonic_ns

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Append one frame's batches; answer at once or after the sync."""
        began_ns = self.now_ns()
        durability, count, batches = read_append(payload)
        try:
            results = self.store(batches, count)
        except EngineError as error:
            log.warning("APPEND refused: %s", error)
            raise
        self.answer(peer, layout.APPEND, request_id, durability, results, began_ns)

    def store(self, batches: bytes | memoryview, count: int) -> bytes:
        """Append the batches; returns one result per batch. Raises EngineError."""
        results = self._store.appender.append_results(batches, count, self._clock.wall_ms())
        self._count(batches, results)
        return results

    def answer(self, peer: Peer, op: int, request_id: int, durability: int, results: bytes, began_ns: int) -> None:
        """Answer with the results and the log's end, at once or after the sync; serve what waits for the records."""
        answer = partial(self._send, peer, op, request_id, results, began_ns)
        # Answers to the APPENDs of one connection keep their order, so an answer also waits for the sync of an earlier
        # one.
        if not self._stored.waits(durability) and not peer.peer_state.unsynced:
            answer()
        else:
            peer.peer_state.unsynced += 1
            everywhere = durability == layout.REPLICATED_FSYNC
            self._stored.when(self._store.end_position, partial(_synced, peer, answer), everywhere)
        self._on_appended()

    def _send(self, peer: Peer, op: int, request_id: int, results: bytes, began_ns: int) -> None:
        peer.send_frame(op, request_id, layout.OK, [results, layout.APPEND_END.pack(self._store.end_position)])
        self.times.since(self._clock, began_ns, 1)

    def _count(self, batches: bytes | memoryview, results: bytes) -> None:
        self.appends += 1
        at = 0
        for code, _, _ in layout.APPEND_RESULT.iter_unpack(results):
            size = int.from_bytes(batches[at + 4 : at + 8], "little")
            if code == layout.OK:
                self.batches += 1
                self.messages += int.from_bytes(batches[at + 24 : at + 28], "little")
                self.bytes += size
            at += size + 7 & ~7


def _synced(peer: Peer, answer: Callable[[], None]) -> None:
    peer.peer_state.unsynced -= 1
    answer()


def read_append(payload: bytes) -> tuple[int, int, memoryview]:
    """(durability, number of batches, batches) of an APPEND's payload. Raises RequestError."""
    if len(payload) < layout.APPEND_HEAD.size or not 1 <= payload[0] <= 4:
        raise RequestError(HEAD_RULE)
    durability, count = layout.APPEND_HEAD.unpack_from(payload)
    batches = memoryview(payload)[layout.APPEND_HEAD.size :]
    if count == 0 or count * layout.BATCH_HEADER_SIZE > len(batches):
        raise RequestError(COUNT_RULE)
    return durability, count, batches
