"""Groups of the replicated load: they pull and acknowledge all the time, want some messages twice, and fail at others."""

import threading
from collections import Counter
from typing import Any, NamedTuple

from common.contract import Ack, Code, Verdict
from tests.e2e.running import Application
from tests.fault.replicated.plan import (
    GROUPS,
    READERS,
    WORKERS,
    Planned,
    is_poison,
    is_retried,
    is_wanted,
    origin,
    planned,
)
from tests.fault.replicated.records import DELIVERED, DONE, MAYBE_DONE, RecordWriter
from tests.fault.replicated.senders import CREDENTIAL_S
from tests.fault.stock_clients import LOST, Puller, now_ms

MESSAGES_MAX = 200
WAIT_MS = 500
RETRY_MS = 100
BACK_OFF_S = 0.02
WRONG_KEPT = 10


class Given(NamedTuple):
    """A delivery whose acknowledgement has to be sent."""

    ack: Ack
    stream: int
    number: int
    attempt: int
    queue: int
    offset: int


class Pullers:
    """
    Attributes:
        codes: of pulls, -1: without an answer. ack_codes: of acknowledgements, the same.
        wrong: deliveries that are no message of the load, or not for this group.
        errors: that ended a thread, which is a fault of the load.
    """

    def __init__(self, address: tuple[str, int], who: Application, pulled: dict[str, RecordWriter]) -> None:
        self._address, self._who, self._pulled = address, who, pulled
        self._stop = threading.Event()
        self.codes: Counter[int] = Counter()
        self.ack_codes: Counter[int] = Counter()
        self.refusals: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=self._guarded, args=(group,)) for group in (*GROUPS, READERS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, group: str) -> None:
        try:
            given: list[Given] = []
            while given or not self._stop.is_set():
                try:
                    with Puller(self._address, self._who) as puller:
                        self._run(puller, group, given)
                except LOST:
                    self.codes[-1] += 1
                    self._note_done(group, given, [None] * len(given))
                    given.clear()  # their leases end, or their acknowledgements have come
                    self._stop.wait(BACK_OFF_S)
        except Exception as error:
            self.errors.append(f"{group}: {error!r}")

    def _run(self, puller: Puller, group: str, given: list[Given]) -> None:
        """Pull until the stop. `given`: deliveries whose acknowledgements go with the next pull."""
        while given or not self._stop.is_set():
            puller.renew(CREDENTIAL_S)
            most = 0 if self._stop.is_set() else MESSAGES_MAX
            response = puller.pull(
                group, topics=[*GROUPS[group]], max_messages=most, wait_ms=WAIT_MS, acks=[each.ack for each in given]
            )
            self.codes[response.code] += 1
            self._note_done(group, given, [result.code for result in response.ack_results])
            given[:] = [self._take(group, delivery) for delivery in response.deliveries]
            if response.code != Code.OK:
                self.refusals[response.error or ""] += 1
                self._stop.wait(BACK_OFF_S)

    def _note_done(self, group: str, given: list[Given], codes: list[int | None]) -> None:
        """Acknowledgements that were refused are not sent again: their messages come again, unless they were taken."""
        at_ms, records = now_ms(), []
        for each, code in zip(given, codes, strict=True):
            self.ack_codes[-1 if code is None else code] += 1
            if each.ack.verdict in (Verdict.DONE, Verdict.REJECT):
                kind = DONE if code == Code.OK else MAYBE_DONE
                records.append((kind, each.stream, each.number, each.attempt, each.queue, each.offset, at_ms))
        self._pulled[group].add(*records)

    def _take(self, group: str, delivery: Any) -> Given:
        found = origin(delivery.message.body or b"")
        stream, number = found or (0, 0)
        message = planned(stream, number)
        if found is None or not is_wanted(group, message):
            self._complain(f"{group}: not for it: {delivery}")
        sent = (delivery.message.topic, delivery.message.key, delivery.message.tag, delivery.message.properties or None)
        if sent != (message.topic, message.key, message.tag, message.properties):
            self._complain(f"{group}: {stream}.{number} is altered: {delivery}")
        place = (delivery.queue, delivery.offset)
        if found is not None:
            self._pulled[group].add((DELIVERED, stream, number, delivery.attempt, *place, now_ms()))
        ack = verdict(group, message, number, delivery)
        return Given(ack, stream, number, delivery.attempt, *place)

    def _complain(self, sentence: str) -> None:
        if len(self.wrong) < WRONG_KEPT:
            self.wrong.append(sentence[:500])


def verdict(group: str, message: Planned, number: int, delivery: Any) -> Ack:
    """Poison is rejected, or fails in all attempts."""
    if group == WORKERS and is_poison(message, number):
        return Ack(delivery.receipt, Verdict.REJECT if number % 2 else Verdict.RETRY)
    if is_retried(number) and delivery.attempt == 1:
        return Ack(delivery.receipt, Verdict.RETRY, delay_ms=RETRY_MS)
    return Ack(delivery.receipt, Verdict.DONE)
