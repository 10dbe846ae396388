"""RESEND: an APPEND that may be stored already, because its answer was lost."""

import logging
from collections.abc import Iterator

from common.limited_log import LimitedLog
from engine.errors import EngineError, NotMasterError
from engine.link import layout
from engine.link.append import RESEND_HEAD
from engine.link.batch import BATCH_HEADER
from engine.log import Log
from engine.ops.append import Append, read_append
from engine.ops.errors import RequestError
from engine.ops.peer import Peer

log = LimitedLog(logging.getLogger("penstock.engine"))
RULE = "RESEND: a position of 8 bytes, then an APPEND"


class Resend:
    """Answers batches that the log has from a position on, and appends the others.

    Batches of one queue that are equal byte for byte count as one.
    """

    def __init__(self, store: Log, append: Append) -> None:
        self._store, self._append = store, append

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Answer as APPEND does; a batch of which the log cannot say whether it is stored gets TIMEOUT.

        The asker has had no message stored before the position, and sends no APPEND before this answer.
        """
        began_ns = self._append.now_ns()
        if len(payload) < RESEND_HEAD.size:
            raise RequestError(RULE)
        (position,) = RESEND_HEAD.unpack_from(payload)
        durability, count, batches = read_append(payload[RESEND_HEAD.size :])
        try:
            results = self._results(position, count, bytes(batches))
        except EngineError as error:
            log.warning("RESEND refused: %s", error)
            raise
        self._append.answer(peer, layout.RESEND, request_id, durability, results, began_ns)

    def _results(self, position: int, count: int, batches: bytes) -> bytes:
        sent = list(_split(batches, count))
        wanted: dict[tuple[int, int], list[bytes]] = {}
        for queue, records, _ in sent:
            wanted.setdefault(queue, []).append(records)
        searched = self._store.batch_search.find(wanted, position)
        # What follows a batch with a wrong size is unknown; so does the appender answer it.
        results = [layout.APPEND_RESULT.pack(layout.INVALID, 0, 0)] * count
        missing = []
        for number, (queue, records, _) in enumerate(sent):
            found, is_complete = searched[queue]
            if records in found:
                results[number] = layout.APPEND_RESULT.pack(layout.OK, 0, found[records])
            elif is_complete:
                missing.append(number)
            else:
                results[number] = layout.APPEND_RESULT.pack(layout.TIMEOUT, 0, 0)
        if missing:
            stored = self._store_missing([sent[number][2] for number in missing], len(missing) == count)
            for number, result in zip(missing, stored, strict=True):
                results[number] = result
        return b"".join(results)

    def _store_missing(self, batches: list[bytes], is_all: bool) -> list[bytes]:
        """The results of these batches. Raises EngineError when nothing else was asked."""
        try:
            data = self._append.store(b"".join(batches), len(batches))
        except EngineError as error:
            if is_all or isinstance(error, NotMasterError):
                raise
            # The other batches are stored, and have to be answered so.
            log.warning("RESEND refused in part: %s", error)
            return [layout.APPEND_RESULT.pack(error.code, 0, 0)] * len(batches)
        size = layout.APPEND_RESULT.size
        return [data[at : at + size] for at in range(0, len(data), size)]


def _split(batches: bytes, count: int) -> Iterator[tuple[tuple[int, int], bytes, bytes]]:
    """((topic id, queue), records, the padded batch) of each batch before the first one with a wrong size."""
    at = 0
    for _ in range(count):
        if at + layout.BATCH_HEADER_SIZE > len(batches):
            return
        header = BATCH_HEADER.unpack_from(batches, at)
        size, queue = header[1], (header[6], header[7])
        if not layout.BATCH_HEADER_SIZE <= size <= len(batches) - at:
            return
        batch = batches[at : at + size]
        yield queue, batch[layout.BATCH_HEADER_SIZE :], batch + bytes(-size % 8)
        at += size + -size % 8
