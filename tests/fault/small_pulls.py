"""A client in a process of its own that sends a small message and pulls it, again and again, and notes how long pulls took.

Its own process, because a busy test would delay it.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from common.contract import Ack, Code, Message
from tests.e2e.running import Application
from tests.fault.stock_clients import Puller, Sender, credential

ROOT = Path(__file__).parents[2]
PAUSE_S = 0.02


class SmallPulls:
    """The running client; `stop()` returns the times of its pulls in seconds."""

    def __init__(
        self, producer: tuple[str, int], consumer: tuple[str, int], who: Application, topic: str
    ) -> None:  # fmt: skip
        facts = json.dumps([producer, consumer, who, topic])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.small_pulls", facts], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def stop(self) -> list[float]:
        """End the client."""
        told, _ = self._process.communicate("stop\n", timeout=60)
        assert self._process.returncode == 0, told
        return json.loads(told)

    def __enter__(self) -> "SmallPulls":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def run(producer: tuple[str, int], consumer: tuple[str, int], who: Application, topic: str) -> None:
    """Send and pull until a line comes on the standard input, then print the times."""
    import select

    took_s = []
    acks: list[Ack] = []
    with Sender(producer, who) as sender, Puller(consumer, who) as puller:
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            proof = credential(who)
            (result,) = sender.send(Message(topic=topic, body=b"x"), credential=proof)
            assert result.code == Code.OK, result
            began = time.perf_counter()
            response = puller.pull("tiny", topic, max_messages=1, wait_ms=5_000, credential=proof, acks=acks or None)
            took_s.append(time.perf_counter() - began)
            assert response.code == Code.OK and len(response.deliveries) == 1, response
            acks = [Ack(receipt=each.receipt) for each in response.deliveries]
    print(json.dumps(took_s))


if __name__ == "__main__":
    made = json.loads(sys.argv[1])
    run(tuple(made[0]), tuple(made[1]), Application(*made[2]), made[3])
