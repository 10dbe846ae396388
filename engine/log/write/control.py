"""Control records: written like messages, to queues of topic 0."""

from collections.abc import Callable

from engine.errors import DiskFullError
from engine.log.format import CODE_OK, CONTROL_TOPIC_ID, pack_batch, pack_record
from engine.log.write.native import Appender

BATCH_BYTES = 32_768


def _nothing(first: int, end: int) -> None:
    pass


class ControlWriter:
    """Appends control records, also while messages are refused to keep room for them.

    Args:
        bytes_max: largest batch; it has to fit into a segment.
    """

    def __init__(self, appender: Appender, now_ms: Callable[[], int], bytes_max: int) -> None:
        self._appender, self._now_ms = appender, now_ms
        self._bytes_max = min(BATCH_BYTES, bytes_max)

    def append(self, kind: int, payloads: list[bytes], take_up: Callable[[int, int], None] = _nothing) -> int:
        """Append the records in as many batches as they need. Returns the offset of the last batch's first record.

        Args:
            take_up: called as (first, end) once payloads[first:end] are in the log, before anything else is. It puts
                them into the view: the next batch may begin a segment, whose checkpoint skips what lies before.
        Raises:
            DiskFullError: there is no room; the first of several batches may be in the log.
        """
        batch: list[bytes] = []
        size = offset = begin = 0
        for at, payload in enumerate(payloads):
            record = pack_record(payload)
            if batch and size + len(record) > self._bytes_max:
                offset = self._append_batch(kind, batch)
                take_up(begin, at)
                batch, size, begin = [], 0, at
            batch.append(record)
            size += len(record)
        if batch:
            offset = self._append_batch(kind, batch)
            take_up(begin, len(payloads))
        return offset

    def _append_batch(self, kind: int, records: list[bytes]) -> int:
        data = pack_batch(kind, CONTROL_TOPIC_ID, kind, records)
        ((code, offset),) = self._appender.append(data, 1, self._now_ms(), trusted=True)
        if code != CODE_OK:
            raise DiskFullError(f"no room for a control record (code {code}): free some disk space")
        return offset
