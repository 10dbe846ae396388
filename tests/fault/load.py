"""Producers under load that outlive any process, with the answer to each message."""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from common.contract import Durability, Message
from tests.e2e.running import Application
from tests.fault.history import OK, UNKNOWN, Delivered, Sent, digest, outcome_of
from tests.fault.stock_clients import LOST, Sender
from tests.waiting import until

JOIN_S_MAX = 25.0
CREDENTIAL_S = 200.0
"""Time for which a client's credential is used: it is valid for 300 s."""


class Producers:
    """Threads that send with a key each, every message under an id that is used once; what is refused is not sent again.

    Args:
        durability: of all messages.
    Attributes:
        acknowledged_at: monotonic seconds of each acknowledged one, in no order.
        sent: every attempt of all of them. An attempt that is not answered yet is not in it.
    """

    def __init__(
        self, address: Callable[[], tuple[str, int]], who: Application, topic: str, count: int = 4,
        durability: int = Durability.FSYNC,
    ):  # fmt: skip
        self._durability = durability
        self.acknowledged_at: list[float] = []
        self._address, self._who, self._topic = address, who, topic
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self.sent: list[Sent] = []
        self.errors: list[BaseException] = []
        self.slowest_s = 0.0
        self._keys = [f"key-{number}" for number in range(count)]
        self._threads: list[threading.Thread] = []

    def start(self) -> "Producers":
        self._stop.clear()
        self._threads = [threading.Thread(target=self._guarded, args=(key,), daemon=True) for key in self._keys]
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Stop, and return when every call has its outcome."""
        self._stop.set()
        for thread in self._threads:
            thread.join(JOIN_S_MAX)
            assert not thread.is_alive(), "a send neither returned nor failed"
        assert self.errors == []

    @property
    def acknowledged(self) -> int:
        return sum(each.outcome == OK for each in self.sent)

    def wait_more(self, count: int, deadline_s: float = 30.0) -> None:
        """Until `count` further messages are acknowledged."""
        goal = self.acknowledged + count
        until(lambda: self.errors or self.acknowledged >= goal, f"{count} more acknowledged messages", deadline_s)

    def _guarded(self, key: str) -> None:
        try:
            self._run(key)
        except BaseException as error:
            self.errors.append(error)

    def _run(self, key: str) -> None:
        client: Sender | None = None
        renew_s = 0.0
        while not self._stop.is_set():
            number = next(self._numbers)
            body = f"{key}:{number}:".encode() + bytes(range(256)) * (number % 5)
            message = Message(topic=self._topic, body=body, key=key, id=f"{key}.{number}")
            if client is not None and time.monotonic() > renew_s:
                client.close()
                client = None
            try:
                if client is None:
                    client, renew_s = Sender(self._address(), self._who), time.monotonic() + CREDENTIAL_S
            except LOST:  # nothing was sent: no attempt
                self._stop.wait(0.01)
                continue
            try:
                (result,) = client.send(message, durability=self._durability)
            except LOST:
                client.close()
                client = None
                self.sent.append(Sent(message.id, key, number, digest(body), UNKNOWN))
                continue
            self.sent.append(_record(message, number, result))
            if result.code == 0:
                self.acknowledged_at.append(time.monotonic())
            if result.code:
                self._stop.wait(0.01)
        if client is not None:
            client.close()


def _record(message: Any, number: int, result: Any) -> Sent:
    outcome = outcome_of(result.code)
    assert outcome != OK or result.id == message.id
    place = (result.queue, result.offset) if outcome == OK else None
    return Sent(message.id, message.key, number, digest(message.body), outcome, place)


def delivered(delivery: Any) -> Delivered:
    message = delivery.message
    place = (delivery.queue, delivery.offset)
    return Delivered(delivery.id, message.key, digest(message.body or b""), place, delivery.attempt)
