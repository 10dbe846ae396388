"""Consumer process that records its pulls and deliveries before it acts on them: `python -m tests.fault.order_consumer
JSON`.

One thread a group. The file is appended to by single writes, so a killed process leaves what it knew. What it says of a
message depends on the message alone: bodies that begin with `r` are rejected, with `f` fail until their sixth attempt,
all others are done.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from common.contract import Ack, Code, Verdict
from tests.e2e.running import Application
from tests.fault.stock_clients import LOST, Puller

HEALS_AT = 6


def verdict_of(delivery: Any) -> str:
    kind = delivery.message.body[:1]
    if kind == b"r":
        return "REJECT"
    return "RETRY" if kind == b"f" and delivery.attempt < HEALS_AT else "DONE"


class Consumer:
    def __init__(self, options: dict[str, Any], group: str) -> None:
        self._ready, self._who = Path(options["ready"]), Application(*options["who"])
        self._topic, self._group = options["topic"], group
        self._file = os.open(options["history"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._chance = random.Random(f"{options['seed']}.{group}")
        self._pulls = 0
        self._held: list[Any] = []

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                place = json.loads(self._ready.read_text())["consumer_proxy"]
                with Puller((place["host"], place["port"]), self._who) as puller:
                    while not stop.is_set():
                        self._pull(puller)
            except (*LOST, ValueError):
                self._held = []
                stop.wait(0.02)

    def _pull(self, puller: Puller) -> None:
        said = [(delivery, verdict_of(delivery)) for delivery in self._held]
        self._held = []
        self._pulls += 1
        name = f"{os.getpid()}.{self._pulls}"
        acks = [[delivery.queue, delivery.offset, verdict] for delivery, verdict in said]
        self._write(what="ask", pull=name, acks=acks)
        response = puller.pull(
            self._group, self._topic, max_messages=self._chance.randint(1, 24), wait_ms=200,
            acks=[Ack(delivery.receipt, getattr(Verdict, verdict)) for delivery, verdict in said],
        )  # fmt: skip
        codes = (
            [int(result.code) for result in response.ack_results] if response.code == Code.OK else [None] * len(acks)
        )
        given = [[each.queue, each.offset, each.attempt] for each in response.deliveries]
        self._write(what="got", pull=name, codes=codes, given=given)
        self._held = response.deliveries
        if response.code != Code.OK:
            time.sleep(0.02)

    def _write(self, **event: Any) -> None:
        os.write(self._file, json.dumps({**event, "group": self._group, "s": time.monotonic()}).encode() + b"\n")


def main() -> None:
    options = json.loads(sys.argv[1])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threads = [threading.Thread(target=Consumer(options, group).run, args=(stop,)) for group in options["groups"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
