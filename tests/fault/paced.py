"""Producers at a fixed rate, independent of the answers' latency, with each message's answer and time since its planned moment."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from common.contract import Code, Message
from tests.e2e.running import Application
from tests.fault.stock_clients import LOST, Sender

STORED = (Code.OK, Code.BUFFERED, Code.DUPLICATE)


class Told(NamedTuple):
    """One message's last answer. `code` -1: the connection broke, so the outcome is unknown."""

    key: str
    number: int
    code: int
    id: str | None
    planned_s: float
    took_s: float

    @property
    def body(self) -> bytes:
        return f"{self.key}:{self.number}:".encode().ljust(128, b".")


class Paced:
    """`rate` messages per second in all, each thread with keys of its own; a thread sends a key's next message after
    its last was answered.

    Args:
        name: the keys begin with it, so that each run has its own.
    """

    def __init__(
        self, address: Callable[[], tuple[str, int]], who: Application, topic: str, rate: int,
        threads: int = 16, keys_a_thread: int = 4, timeout_ms: int = 3000, name: str = "",
    ) -> None:  # fmt: skip
        self._address, self._who, self._topic, self._name = address, who, topic, name
        self._interval_s, self._keys, self._timeout_ms = threads / rate, keys_a_thread, timeout_ms
        self._stop = threading.Event()
        self.told: list[Told] = []
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._guarded, args=(n,), daemon=True) for n in range(threads)]
        self._started_s = time.monotonic()

    def start(self) -> "Paced":
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> list[Told]:
        """Returns when every call has its answer: all of them, in the order of each key."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a send neither returned nor failed"
        assert self.errors == []
        return self.told

    def _guarded(self, number: int) -> None:
        try:
            self._run(number)
        except BaseException as error:
            self.errors.append(error)

    def _run(self, thread: int) -> None:
        sender: Sender | None = None
        count = 0
        while not self._stop.is_set():
            planned_s = self._started_s + (count + thread / len(self._threads)) * self._interval_s
            if (pause_s := planned_s - time.monotonic()) > 0 and self._stop.wait(pause_s):
                break
            key = f"{self._name}t{thread}.k{count % self._keys}"
            sender, told = self._once(sender, Told(key, count // self._keys, -1, None, planned_s, 0.0))
            self.told.append(told)
            count += 1
        if sender is not None:
            sender.close()

    def _once(self, sender: Sender | None, told: Told) -> tuple[Sender | None, Told]:
        try:
            sender = sender or Sender(self._address(), self._who)
            message = Message(topic=self._topic, key=told.key, body=told.body)
            (result,) = sender.send(message, timeout_ms=self._timeout_ms)
        except LOST:
            if sender is not None:
                sender.close()
            self._stop.wait(0.02)
            return None, told._replace(code=-1, took_s=time.monotonic() - told.planned_s)
        took_s = time.monotonic() - told.planned_s
        return sender, told._replace(code=result.code, id=result.id, took_s=took_s)


@dataclass
class Comparison:
    """Comparison of the answers with the log."""

    lost: list[Told] = field(default_factory=list)
    other_ids: list[Told] = field(default_factory=list)
    swapped: list[tuple[str, int, int]] = field(default_factory=list)
    copies: int = 0

    @property
    def broken(self) -> dict[str, list]:
        return {name: getattr(self, name)[:5] for name in ("lost", "other_ids", "swapped") if getattr(self, name)}


def compare(told: Iterable[Told], deliveries: Iterable[Any]) -> Comparison:
    """`deliveries`: all that is stored, queue by queue in order. A message's place is its first copy's; copies have its id."""
    found = Comparison()
    ids: dict[bytes, list[str]] = defaultdict(list)
    last: dict[str, int] = {}
    for delivery in deliveries:
        body = delivery.message.body
        key, number = body.decode().split(":")[:2]
        if not ids[body]:
            if int(number) < last.get(key, -1):
                found.swapped.append((key, last[key], int(number)))
            last[key] = int(number)
        ids[body].append(delivery.id)
    for each in told:
        if each.code in STORED:
            if not ids[each.body]:
                found.lost.append(each)
            elif set(ids[each.body]) != {each.id}:
                found.other_ids.append(each)
    found.copies = sum(len(copies) - 1 for copies in ids.values() if copies)
    return found


def percentile(values: Iterable[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0
