"""Callers at a fixed rate, independent of the answers' latency; each answer is recorded in a few bytes."""

import threading
import time
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TSocket, TTransportException
from thriftpy2.transport.framed import TCyFramedTransport

from bench.generator import LoadTarget
from common.contract import Code, Credential, Message, Producer, SendRequest
from common.credential import mint

KEYS = 4
BODY_BYTES = 128
CREDENTIAL_S = 120.0
SOCKET_MS = 20_000
LOST = -1
STORED = (int(Code.OK), int(Code.BUFFERED), int(Code.DUPLICATE))


class TimedCall(NamedTuple):
    """One call: `took_s` counts from the planned time; `code` LOST: the connection broke."""

    planned_s: float
    took_s: float
    code: int


class PacedLoad:
    """`rate` sends per second over the threads until `stop()`, each thread with its own keys and one call at a time.

    Args:
        active: while it is clear nothing is sent, and nothing counts as planned.
    """

    def __init__(self, target: LoadTarget, topic: str, rate: int, threads: int, active: threading.Event) -> None:
        self._target, self._topic, self._interval_s, self._active = target, topic, threads / rate, active
        self._stopping = threading.Event()
        self._calls = [(array("d"), array("d"), array("h")) for _ in range(threads)]
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop sending and return when every call has its answer."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * SOCKET_MS / 1000)

    @property
    def calls(self) -> Iterator[TimedCall]:
        return (TimedCall(*each) for columns in self._calls for each in zip(*columns, strict=False))

    @property
    def stored(self) -> Iterator[tuple[int, int]]:
        """Yield (thread, number) of each message that was answered as stored."""
        for thread, (_, _, codes) in enumerate(self._calls):
            yield from ((thread, number) for number, code in enumerate(codes) if code in STORED)

    def _run(self, thread: int) -> None:
        planned, took, codes = self._calls[thread]
        client, minted_s = None, 0.0
        next_s = time.monotonic() + thread / len(self._threads) * self._interval_s
        while not self._stopping.wait(max(0.0, next_s - time.monotonic())):
            if not self._active.is_set():
                next_s = time.monotonic() + self._interval_s
                continue
            if time.monotonic() - minted_s > CREDENTIAL_S:
                minted_s, credential = time.monotonic(), self._credential()
            number = len(codes)
            message = Message(topic=self._topic, key=key_of(thread, number), body=body_of(thread, number))
            try:
                client = client or self._connect()
                code = client.send(SendRequest(credential=credential, messages=[message])).results[0].code
            except (OSError, TTransportException):
                client, code = None, LOST
            planned.append(next_s)
            took.append(time.monotonic() - next_s)
            codes.append(code)
            next_s += self._interval_s

    def _credential(self) -> Any:
        return credential(self._target)

    def _connect(self) -> Any:
        return connect(Producer, self._target.producer)


def credential(target: LoadTarget) -> Any:
    """Mint a credential."""
    return Credential(**mint(target.app, target.key_id, target.secret, time.time_ns() // 1_000_000)._asdict())


def connect(service: Any, address: tuple[str, int]) -> Any:
    """Connect a stock client."""
    transport = TCyFramedTransport(TSocket(*address, socket_timeout=SOCKET_MS))
    transport.open()
    return TClient(service, TCyBinaryProtocol(transport))


def key_of(thread: int, number: int) -> str:
    return f"{thread}.{number % KEYS}"


def body_of(thread: int, number: int) -> bytes:
    return b"%d.%d." % (thread, number) + b"." * (BODY_BYTES - 20)
