"""A paced flow of messages through both proxies, in a process of its own: batches are sent on time, and pulled at once.

Prints the times from a batch's planned moment to its delivery, so a stall counts for every message that waited.
"""

import json
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

from common.contract import Ack, Code, Message
from tests.e2e.running import Application
from tests.fault.stock_clients import Puller, Sender, credential

ROOT = Path(__file__).parents[2]
BATCH = 50
BODY_BYTES = 200
PULLERS = 2


class LiveFlow:
    """The running flow; `times()` ends it."""

    def __init__(
        self, producer: tuple[str, int], consumer: tuple[str, int], who: Application, topic: str, rate: int
    ) -> None:  # fmt: skip
        facts = json.dumps([producer, consumer, who, topic, rate])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.live_flow", facts], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def times(self) -> list[float]:
        """Seconds from plan to delivery of one message per batch, sorted."""
        told, _ = self._process.communicate("stop\n", timeout=60)
        assert self._process.returncode == 0, told
        return sorted(json.loads(told))


class _Flow:
    def __init__(self, producer: tuple[str, int], consumer: tuple[str, int], who: Application, topic: str) -> None:
        self._producer, self._consumer, self._who, self._topic = producer, consumer, who, topic
        self._stop = threading.Event()
        self._started_s = time.monotonic()  # an earlier flow may have left messages
        self.took_s: list[float] = []
        self.errors: list[BaseException] = []

    def run(self, rate: int) -> None:
        threads = [threading.Thread(target=self._guarded, args=(self._send, rate))]
        threads += [threading.Thread(target=self._guarded, args=(self._pull, 0)) for _ in range(PULLERS)]
        for thread in threads:
            thread.start()
        select.select([sys.stdin], [], [])
        self._stop.set()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _guarded(self, work, rate: int) -> None:
        try:
            work(rate)
        except BaseException as error:
            self.errors.append(error)

    def _send(self, rate: int) -> None:
        planned_s, step_s, calls = time.monotonic(), BATCH / rate, 0
        with Sender(self._producer, self._who) as sender:
            proof = credential(self._who)
            while not self._stop.is_set():
                planned_s += step_s
                time.sleep(max(0.0, planned_s - time.monotonic()))
                calls += 1
                if calls % 1000 == 0:
                    proof = credential(self._who)
                body = b"%.6f" % planned_s
                messages = [Message(topic=self._topic, body=body.ljust(BODY_BYTES)) for _ in range(BATCH)]
                results = sender.send(*messages, credential=proof)
                assert {each.code for each in results} == {Code.OK}, results[0]

    def _pull(self, _: int) -> None:
        with Puller(self._consumer, self._who) as puller:
            acks: list[Ack] = []
            while not self._stop.is_set():
                response = puller.pull(
                    "live",
                    self._topic,
                    max_messages=500,
                    wait_ms=500,
                    acks=acks or None,
                    credential=credential(self._who),
                )
                now_s = time.monotonic()
                assert response.code == Code.OK, response
                acks = [Ack(receipt=each.receipt) for each in response.deliveries]
                planned = {float(each.message.body) for each in response.deliveries}
                self.took_s += [now_s - each for each in planned if each >= self._started_s]


def main() -> None:
    producer, consumer, who, topic, rate = json.loads(sys.argv[1])
    flow = _Flow(tuple(producer), tuple(consumer), Application(*who), topic)
    flow.run(rate)
    print(json.dumps(flow.took_s))


if __name__ == "__main__":
    main()
