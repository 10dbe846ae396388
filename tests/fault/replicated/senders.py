"""Senders of the replicated load: one thread and one connection per stream, paced, without catching up after a stall."""

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from common.contract import Durability, Message
from tests.e2e.running import Application
from tests.fault.replicated.plan import BATCH, BATCHES, DELAYED, SHARES, SINGLES, STREAMS, planned
from tests.fault.replicated.records import LOST_CALL, RecordWriter
from tests.fault.stock_clients import LOST, Sender, now_ms

CREDENTIAL_S = 200.0
"""Time for which a credential is used: it is valid for 300 s."""
REFUSALS_KEPT = 30


class Senders:
    """Every message is sent once, whatever becomes of it.

    Args:
        synced: streams whose messages are acknowledged once they are on the disks of all members.
    Attributes:
        refusals: error texts of messages that were not stored, with their codes.
        errors: that ended a thread, which is a fault of the load.
    """

    def __init__(self, address: tuple[str, int], who: Application, rate: float, sent: RecordWriter,
                 synced: Collection[int] = ()) -> None:  # fmt: skip
        self._synced = synced
        self._address, self._who, self._sent = address, who, sent
        self._stop = threading.Event()
        self._numbers = dict.fromkeys(range(STREAMS), 0)
        self.codes: Counter[int] = Counter()
        self.refusals: Counter[tuple[int, str]] = Counter()
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(stream, *pace(stream, rate))) for stream in range(STREAMS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and return when every call has its outcome."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, stream: int, per_call: int, period_s: float) -> None:
        try:
            for client in self._clients():
                self._run(client, stream, per_call, period_s)
        except Exception as error:
            self.errors.append(repr(error))

    def _clients(self) -> Iterator[Sender]:
        """Connected clients, the next one when a connection was lost. One that cannot connect has sent nothing."""
        while not self._stop.is_set():
            try:
                client = Sender(self._address, self._who)
            except LOST:
                self._stop.wait(0.02)
                continue
            yield client
            client.close()

    def _run(self, client: Sender, stream: int, per_call: int, period_s: float) -> None:
        next_s = time.monotonic() + period_s * stream / STREAMS
        fields = {"durability": Durability.REPLICATED_FSYNC} if stream in self._synced else {}
        while not self._stop.wait(max(0.0, next_s - time.monotonic())):
            next_s = max(next_s + period_s, time.monotonic())
            client.renew(CREDENTIAL_S)
            first = self._numbers[stream]
            self._numbers[stream] += per_call
            began_s, began_ms = time.monotonic(), now_ms()
            messages = [message(stream, number) for number in range(first, first + per_call)]
            try:
                results: Any = client.send(*messages, **fields)
            except LOST:
                results = [None] * per_call
            self._note(stream, first, results, began_s, began_ms)
            if results[0] is None:
                return

    def _note(self, stream: int, first: int, results: list, began_s: float, began_ms: int) -> None:
        now_s, records = time.monotonic(), []
        for number, result in enumerate(results, first):
            delay_ms = planned(stream, number).delay_ms
            code = LOST_CALL if result is None else result.code
            queue = result.queue if result is not None and result.queue is not None else -1
            offset = result.offset if result is not None and result.offset is not None else -1
            due_ms = began_ms + delay_ms if delay_ms else 0
            records.append((stream, number, code, queue, offset, now_s, now_s - began_s, due_ms))
            self.codes[code] += 1
            if code >= 100 and len(self.refusals) < REFUSALS_KEPT:
                self.refusals[code, "" if result is None else result.error or ""] += 1
        self._sent.add(*records)


def pace(stream: int, rate: float) -> tuple[int, float]:
    """Messages per call, and seconds from call to call."""
    if stream == DELAYED:
        return 1, 1 / (rate * SHARES["delayed"])
    if stream in BATCHES:
        return BATCH, BATCH * len(BATCHES) / (rate * SHARES["batches"])
    return 1, len(SINGLES) / (rate * SHARES["singles"])


def message(stream: int, number: int) -> Message:
    """Every second delay is named as a moment."""
    plan = planned(stream, number)
    fields: dict[str, Any] = {}
    if plan.delay_ms:
        fields = {"deliver_at_ms": now_ms() + plan.delay_ms} if number % 2 else {"delay_ms": plan.delay_ms}
    return Message(
        topic=plan.topic, body=plan.body, key=plan.key, tag=plan.tag, properties=plan.properties, id=plan.id, **fields
    )
