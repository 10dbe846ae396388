"""The load's history in memory: 20 bytes per message, read from the files of its process."""

from array import array
from collections.abc import Iterator
from pathlib import Path

from tests.fault.replicated.plan import STREAMS
from tests.fault.replicated.records import SENT, RecordReader, SentRecord

OFFSET_BITS = 48
NOT_ANSWERED = 65535


def packed(queue: int, offset: int) -> int:
    return queue << OFFSET_BITS | offset if queue >= 0 and offset >= 0 else -1


class StreamHistory:
    """Messages of one stream by number: code, place and due time."""

    def __init__(self) -> None:
        self.codes, self.places, self.due_ms = array("H"), array("q"), array("q")

    def add(self, record: SentRecord) -> None:
        while len(self.codes) <= record.number:
            self.codes.append(NOT_ANSWERED)
            self.places.append(-1)
            self.due_ms.append(0)
        self.codes[record.number] = record.code
        self.places[record.number] = packed(record.queue, record.offset)
        self.due_ms[record.number] = record.due_ms


class SentHistory:
    """
    Attributes:
        acknowledged_s: monotonic times of the answers of acknowledged messages.
        refused: records of all other messages.
    """

    def __init__(self, path: Path) -> None:
        self._reader = RecordReader(path, SENT)
        self.streams = [StreamHistory() for _ in range(STREAMS)]
        self.acknowledged_s = array("d")
        self.refused: list[SentRecord] = []
        self.slowest_s = 0.0

    def read(self) -> "SentHistory":
        """Read what has come since the last time."""
        for each in self._reader.new():
            record = SentRecord(*each)
            self.streams[record.stream].add(record)
            self.slowest_s = max(self.slowest_s, record.took_s)
            if record.is_acknowledged:
                self.acknowledged_s.append(record.answered_s)
            else:
                self.refused.append(record)
        return self

    def acknowledged(self) -> Iterator[tuple[int, int, int]]:
        """Stream, number and place of each acknowledged message; place -1: its answer named none."""
        for stream, history in enumerate(self.streams):
            for number, code in enumerate(history.codes):
                if code < 100:
                    yield stream, number, history.places[number]
