"""Consumer process that bench.hung_consumer stops: `python -m bench.work_consumer JSON`.

As `pop` it pulls as one of a group; as `owner` it reads its own queues, which no other consumer reads. For each
processed message it writes the number and the time, in seconds of the machine's monotonic clock, to its file, and then
acknowledges.
"""

import json
import os
import sys
import time
from typing import Any, NamedTuple

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TSocket
from thriftpy2.transport.framed import TCyFramedTransport

from common.contract import Ack, Code, Consumer, Credential, Position, PullRequest
from common.credential import mint

WAIT_MS = 200
POLL_S = 0.01


class ConsumerTask(NamedTuple):
    """Arguments of a consumer. `queues`: the queues that it owns, for `owner`."""

    address: tuple[str, int]
    app: str
    key_id: str
    secret: str
    topic: str
    group: str
    lease_ms: int
    batch: int
    work_s: float
    file: str
    queues: list[int]


def client(service: Any, address: tuple[str, int]) -> Any:
    """Connect a stock client: one blocking socket."""
    transport = TCyFramedTransport(TSocket(*address))
    transport.open()
    return TClient(service, TCyBinaryProtocol(transport))


def credential(app: str, key_id: str, secret: str) -> Any:
    return Credential(**mint(app, key_id, secret, time.time_ns() // 1_000_000)._asdict())


class Worker:
    def __init__(self, work: ConsumerTask) -> None:
        self._work = work
        self._stub = client(Consumer, (work.address[0], work.address[1]))
        self._credential = credential(work.app, work.key_id, work.secret)
        self._file = os.open(work.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def pop(self) -> None:
        acks: list[Any] = []
        while True:
            response = self._pull(
                topics=[self._work.topic], acks=acks, invisible_ms=self._work.lease_ms, wait_ms=WAIT_MS
            )
            self._do(response.deliveries)
            acks = [Ack(delivery.receipt) for delivery in response.deliveries]

    def own(self) -> None:
        offsets = dict.fromkeys(self._work.queues, 0)
        while True:
            places = [Position(self._work.topic, queue, offset=offset) for queue, offset in offsets.items()]
            response = self._pull(positions=places)
            self._do(response.deliveries)
            offsets |= {each.queue: each.next_offset for each in response.positions if each.code == Code.OK}
            if not response.deliveries:
                time.sleep(POLL_S)

    def _pull(self, **fields: Any) -> Any:
        response = self._stub.pull(
            PullRequest(credential=self._credential, group=self._work.group, max_messages=self._work.batch, **fields)
        )
        if response.code != Code.OK:
            raise SystemExit(f"pull: {response.code} {response.error}")
        return response

    def _do(self, deliveries: list[Any]) -> None:
        if deliveries:
            time.sleep(self._work.work_s)
            done_s = time.monotonic()
            lines = "".join(f"{delivery.message.body.decode()} {done_s}\n" for delivery in deliveries)
            os.write(self._file, lines.encode())


def main() -> None:
    work = ConsumerTask(**json.loads(sys.argv[1]))
    worker = Worker(work)
    if work.queues:
        worker.own()
    else:
        worker.pop()


if __name__ == "__main__":
    main()
