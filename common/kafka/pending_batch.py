"""A batch of records that Kafka's client has, until each has its result. The reference of `_pending_batch.pyx`."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, Protocol

from common.contract import Code
from common.kafka.records import NO_OFFSET, OutgoingRecords, ProduceResults

_OK = int(Code.OK)


class HasOffset(Protocol):
    offset: int


class PendingBatch:
    """One batch on its way. Callbacks may come from any thread, each record once."""

    __slots__ = ("_all", "_codes", "_done", "_offsets", "_on_done", "_sentences")

    def __init__(self, size: int, on_done: Callable[[ProduceResults], None]) -> None:
        self._all = size - 1
        self._codes = [_OK] * size
        self._offsets = [NO_OFFSET] * size
        self._sentences: dict[int, str] = {}
        self._on_done = on_done
        # Its step is one operation of the interpreter, so that the last callback is told without a lock.
        self._done = count().__next__

    def stored(self, index: int, offset: int) -> None:
        self._offsets[index] = offset
        if self._done() == self._all:
            self._finish()

    def refuse(self, index: int, code: int, sentence: str) -> None:
        self._codes[index] = code
        self._sentences[index] = sentence
        if self._done() == self._all:
            self._finish()

    def stored_as(self, index: int, record: HasOffset) -> None:
        self.stored(index, record.offset)

    def failed(self, outcome: Callable[[BaseException], tuple[int, str]], index: int, fault: BaseException) -> None:
        self.refuse(index, *outcome(fault))

    def _finish(self) -> None:
        # By index: callbacks of several partitions come in any order.
        sentences = dict(sorted(self._sentences.items()))
        self._on_done(ProduceResults(self._codes, self._offsets, sentences))


def send_each(
    send: Callable[..., Any], records: OutgoingRecords, pending: PendingBatch, skipped: Mapping[int, tuple[int, str]],
    outcome: Callable[[Any], tuple[int, str]], on_fault: Callable[[int, Exception], None],
) -> None:  # fmt: skip
    """Hand records to librdkafka's producer, each with a delivery report that gives `pending` its result.

    Args:
        send: its `produce`. skipped: results of records that are not sent.
        outcome: code and sentence of a report's error.
        on_fault: called with an exception of `send`, and the record's index.
    """
    report = partial(_report, pending.stored, pending.refuse, outcome)
    for index, (topic, partition, timestamp, key, value, headers) in enumerate(zip(*records, strict=True)):
        if skipped and index in skipped:
            pending.refuse(index, *skipped[index])
            continue
        try:
            # By position, which is cheaper; the callback's place is on_delivery's.
            send(topic, value, key, partition, partial(report, index), None, timestamp, headers or None)
        except Exception as fault:
            on_fault(index, fault)


def _report(stored: Any, refuse: Any, outcome: Any, index: int, error: Any, message: Any) -> None:
    if error is None:
        stored(index, message.offset())
    else:
        refuse(index, *outcome(error))


def payload_bytes(records: OutgoingRecords) -> int:
    """Payload of all records, without headers' names: what a producer counts against its memory."""
    payload = sum(map(len, filter(None, records.keys))) + sum(map(len, filter(None, records.values)))
    return payload + sum(len(value) for headers in records.headers for _, value in headers if value)
