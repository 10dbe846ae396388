"""Many consumers that each ask for 12 MiB of messages of 1 MiB, beside a small pull now and then.

    python -m tests.fault.big_pulls --consumers 350 --messages 2100

One thread reads all of them. Each acknowledges what it got with its next pull, until every message is acknowledged.
"""

import argparse
import selectors
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from common import contract
from common.contract import Ack, Code, Message, PullRequest
from tests.e2e.running import Application, RunningPenstock
from tests.fault.paced import percentile
from tests.fault.processes import rss_bytes
from tests.fault.small_pulls import SmallPulls
from tests.fault.stock_clients import Sender, credential, knows

MIB = 1 << 20
PULL_BYTES = 12 * MIB
WAIT_MS = 1_000
CREDENTIAL_S = 60.0


class Figures(NamedTuple):
    """What a run found. Sizes in MiB, times in seconds.

    Attributes:
        rss: peak of each process.
        codes: of the pulls. attempts: deliveries by attempt.
        delivered: different messages. copies: further deliveries of them.
        small_s: of the small pulls, sorted.
    """

    rss: dict[str, int]
    codes: dict[int, int]
    attempts: dict[int, int]
    delivered: int
    copies: int
    took_s: float
    small_s: list[float]

    def __str__(self) -> str:
        worst = ", ".join(f"{name} {size} MiB" for name, size in self.rss.items())
        p50_ms, p99_ms = (1000 * percentile(self.small_s, share) for share in (0.5, 0.99))
        small = f"small pulls {len(self.small_s)}: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms"
        return (
            f"peaks: {worst}\ndelivered {self.delivered} in {self.took_s:.0f} s, copies {self.copies}, "
            f"by attempt {self.attempts}, codes {self.codes}\n{small}, worst {1000 * self.small_s[-1]:.1f} ms"
        )


class Consumer:
    """One framed connection with one pull at a time."""

    def __init__(self, address: tuple[str, int], receive_bytes: int | None = None) -> None:
        self.sock = socket.socket()
        if receive_bytes is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.connect(address)
        self.sock.setblocking(False)
        self.acks: list[Ack] = []
        self._got = bytearray()
        self._frame: memoryview | None = None

    def ask(self, request: PullRequest) -> None:
        request.acks, self.acks = self.acks or None, []
        frame = contract.encode_call("pull", 1, request)
        self.sock.setblocking(True)
        self.sock.sendall(len(frame).to_bytes(4, "big") + frame)
        self.sock.setblocking(False)

    def receive(self) -> Any:
        """The response once it is complete, else None. Raises OSError, EOFError."""
        chunk = self.sock.recv(MIB)
        if not chunk:
            raise EOFError("closed by the proxy")
        self._got += chunk
        if len(self._got) < 4 or len(self._got) < 4 + int.from_bytes(self._got[:4], "big"):
            return None
        frame, self._got = bytes(self._got[4:]), bytearray()
        return contract.decode_reply(frame)


class BigPulls:
    """The consumers and their figures."""

    def __init__(self, penstock: RunningPenstock, who: Application, count: int, messages: int) -> None:
        self._penstock, self._who, self._messages = penstock, who, messages
        self._credential, self._credential_s = credential(who), time.monotonic()
        self._consumers = [Consumer(penstock.consumer) for _ in range(count)]
        self._seen: set[tuple[int, int]] = set()
        self._codes: Counter[int] = Counter()
        self._attempts: Counter[int] = Counter()
        self._copies = 0
        self._again: list[tuple[float, Consumer]] = []

    def run(self, deadline_s: float) -> tuple[dict[int, int], dict[int, int], int, int]:
        """(codes, deliveries by attempt, different messages, copies) once all messages were delivered."""
        with selectors.DefaultSelector() as waiting:
            for each in self._consumers:
                waiting.register(each.sock, selectors.EVENT_READ, each)
                self._ask(each)
            until_s = time.monotonic() + deadline_s
            while time.monotonic() < until_s and len(self._seen) < self._messages:
                for key, _ in waiting.select(0.05):
                    response = key.data.receive()
                    if response is not None:
                        self._take(key.data, response)
                        self._again.append((time.monotonic() + (0.05 if response.code >= 200 else 0), key.data))
                self._ask_again()
        return dict(self._codes), dict(self._attempts), len(self._seen), self._copies

    def close(self) -> None:
        for each in self._consumers:
            each.sock.close()

    def _ask_again(self) -> None:
        """Ask for those whose pause is over; the others go on reading meanwhile."""
        now_s = time.monotonic()
        due = [consumer for at_s, consumer in self._again if at_s <= now_s]
        self._again = [each for each in self._again if each[0] > now_s]
        for consumer in due:
            self._ask(consumer)

    def _ask(self, consumer: Consumer) -> None:
        if time.monotonic() - self._credential_s > CREDENTIAL_S:
            self._credential, self._credential_s = credential(self._who), time.monotonic()
        consumer.ask(
            PullRequest(
                credential=self._credential, group="readers", topics=["large"], max_messages=1000, max_bytes=PULL_BYTES,
                wait_ms=WAIT_MS,
            )
        )  # fmt: skip

    def _take(self, consumer: Consumer, response: Any) -> None:
        self._codes[response.code] += 1
        for each in response.deliveries or ():
            self._attempts[each.attempt] += 1
            self._copies += (each.queue, each.offset) in self._seen
            self._seen.add((each.queue, each.offset))
            consumer.acks.append(Ack(receipt=each.receipt))


class PeakMemory:
    """Greatest memory of some processes, sampled."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids, self.peak = pids, dict.fromkeys(pids, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            for name, pid in self._pids.items():
                self.peak[name] = max(self.peak[name], rss_bytes(pid) // MIB)

    def stop(self) -> dict[str, int]:
        self._stop.set()
        self._thread.join()
        return self.peak


def prepare(penstock: RunningPenstock, messages: int) -> Application:
    """Store the messages; returns the application of all clients."""
    penstock.run("topic", "create", "large", "--queues", "8", "--durability", "memory")
    penstock.run("topic", "create", "small", "--queues", "1", "--durability", "memory")
    who = penstock.application("shop", send=["*"], pull=["*"])
    body = bytes(MIB)
    with Sender(penstock.producer, who) as sender:
        knows(sender, "small")
        for _ in range(messages // 3):
            results = sender.send(*[Message(topic="large", body=body)] * 3, credential=credential(who))
            assert {each.code for each in results} == {Code.OK}
    return who


def measure(penstock: RunningPenstock, consumers: int, messages: int, deadline_s: float = 300.0) -> Figures:
    """Store messages, read them all by many consumers, and return the figures."""
    who = prepare(penstock, messages)
    pids = {name: penstock.pids[name] for name in ("engine", "producer_proxy", "consumer_proxy")}
    memory, pulls = PeakMemory(pids), BigPulls(penstock, who, consumers, messages // 3 * 3)
    started_s = time.monotonic()
    with SmallPulls(penstock.producer, penstock.consumer, who, "small") as small:
        found = pulls.run(deadline_s)
        took_s = time.monotonic() - started_s
        small_s = sorted(small.stop())
    pulls.close()
    return Figures(memory.stop(), *found, took_s, small_s)


def main(start: Callable[..., RunningPenstock] = RunningPenstock) -> None:
    parser = argparse.ArgumentParser(description="Measure memory and small pulls beside many large pulls.")
    parser.add_argument("--consumers", type=int, default=350)
    parser.add_argument("--messages", type=int, default=2100, help="Number of messages of 1 MiB.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        penstock = start(Path(directory) / "data").start()
        try:
            print(measure(penstock, options.consumers, options.messages))
        finally:
            penstock.end()


if __name__ == "__main__":
    main()
