"""Stock thriftpy2 clients of a running Penstock: one blocking socket each, the credential minted by the application itself."""

import time
from typing import Any

from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TSocket, TTransportException
from thriftpy2.transport.buffered import TCyBufferedTransport
from thriftpy2.transport.framed import TCyFramedTransport

from common.contract import (
    Code,
    Consumer,
    Credential,
    Delivery,
    Message,
    Position,
    Producer,
    PullRequest,
    PullResponse,
    SendRequest,
    SendResult,
)
from common.credential import mint
from tests.e2e.running import Application
from tests.waiting import until

SOCKET_S_MAX = 20.0
LOST = (OSError, TTransportException)
"""Errors at a client whose proxy died: the outcome of the call is unknown."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def credential(who: Application, age_ms: int = 0) -> Any:
    return Credential(**mint(who.app, who.key_id, who.secret, now_ms() - age_ms)._asdict())


class _Client:
    service: Any

    def __init__(self, address: tuple[str, int], who: Application, transport: str = "framed"):
        self.who = who
        self._credential = credential(who)  # one for many calls, so that the proxy's verdict on it is remembered
        self._minted_s = time.monotonic()
        wrap = {"framed": TCyFramedTransport, "buffered": TCyBufferedTransport}[transport]
        self._transport = wrap(TSocket(*address, socket_timeout=SOCKET_S_MAX * 1000))
        self._transport.open()
        self.stub = TClient(self.service, TCyBinaryProtocol(self._transport))

    def renew(self, age_s_max: float) -> None:
        """Take another credential if this one is older."""
        if time.monotonic() - self._minted_s > age_s_max:
            self._credential, self._minted_s = credential(self.who), time.monotonic()

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sender(_Client):
    service = Producer

    def send(self, *messages: Any, **fields: Any) -> list[SendResult]:
        """One call; its results in the order of the messages."""
        fields.setdefault("credential", self._credential)
        return self.stub.send(SendRequest(messages=list(messages), **fields)).results

    def one(self, topic: str, body: bytes = b"m", **fields: Any) -> SendResult:
        (result,) = self.send(Message(topic=topic, body=body, **fields))
        return result


class Puller(_Client):
    service = Consumer

    def pull(self, group: str, topic: str | None = None, **fields: Any) -> PullResponse:
        fields.setdefault("credential", self._credential)
        if topic is not None:
            fields["topics"] = [topic]
        return self.stub.pull(PullRequest(group=group, **fields))

    def read_all(self, group: str, topic: str, queues: int) -> list[Delivery]:
        """Every stored message by its position, queue by queue; leases nothing."""
        return self.read_on(group, topic, [0] * queues)

    def read_on(self, group: str, topic: str, offsets: list[int]) -> list[Delivery]:
        """Every message from these offsets on, one a queue; they become the ends. A broker group may be away for a while."""
        found: list[Delivery] = []
        for queue in range(len(offsets)):
            while True:
                place = Position(topic, queue, offset=offsets[queue])

                def answered(place: Position = place) -> PullResponse | None:
                    found = self.pull(group, positions=[place], max_messages=1000, max_bytes=4 << 20)
                    return found if found.code == Code.OK else None

                response = until(answered, f"{topic} queue {queue} is read", 30)
                (report,) = response.positions
                assert report.code == Code.OK, report
                found += response.deliveries
                offsets[queue] = report.next_offset
                if offsets[queue] >= report.end_offset:
                    break
        return found


def knows(sender: Sender, topic: str) -> None:
    """Wait until the proxy has seen a topic that was just defined."""
    until(lambda: sender.one(topic).code == Code.OK, f"topic {topic} is known to the producer proxy")


def retry_until_served(make: Any, what: str, deadline_s: float = 20.0) -> Any:
    """The first result of `make()` that is true; what a restarting proxy does to a client counts as not yet."""

    def attempt() -> Any:
        try:
            return make()
        except LOST:
            return None

    return until(attempt, what, deadline_s)
