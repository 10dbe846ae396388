"""In-memory Penstock for the tests of the clients: the contract on real sockets, with faults on demand.

It speaks binary Thrift over framed and buffered transport on each port, verifies credentials, drops duplicates by id,
leases deliveries and takes acknowledgements. It keeps nothing and is as slow as thriftpy2 with a thread a connection: a
stand-in for retry behaviour, not for the product.

    with FakePenstock(producers=2) as fake:
        fake.producers[0].faults.append(Fault(code=203, retry_after_ms=10))
"""

import argparse
import hashlib
import hmac
import json
import signal
import socket
import ssl
import struct
import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import thriftpy2
from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TSocket
from thriftpy2.transport.buffered import TCyBufferedTransport
from thriftpy2.transport.framed import TCyFramedTransport

IDL = Path(__file__).resolve().parents[2] / "thrift"
message_thrift = thriftpy2.load(str(IDL / "message.thrift"), module_name="message_thrift")
producer_thrift = thriftpy2.load(str(IDL / "producer.thrift"), module_name="fake_producer_thrift")
consumer_thrift = thriftpy2.load(str(IDL / "consumer.thrift"), module_name="fake_consumer_thrift")
Code = message_thrift.Code
Verdict = consumer_thrift.Verdict

QUEUES = 8
UNTRUSTED_FRAME_BYTES_MAX = 65_536


@dataclass
class Fault:
    """Faults of the next `times` calls of one proxy.

    Attributes:
        code: answered instead of doing the work; None: do the work.
        messages: positions within the call that the code applies to; None: all. The others are stored as usual.
        drop: "before" closes the connection without doing the work, "after" does it and then closes.
    """

    code: int | None = None
    retry_after_ms: int | None = None
    messages: set[int] | None = None
    drop: str = ""
    times: int = 1

    def hits(self, position: int) -> bool:
        return self.code is not None and (self.messages is None or position in self.messages)


class Dropped(Exception):
    """Ends the connection without an answer."""


@dataclass
class Record:
    message: Any
    id: str
    queue: int
    offset: int
    stored_at_ms: int


@dataclass
class Lease:
    record: Record
    attempt: int
    until: float


@dataclass
class Store:
    """Topics, their records and the state of each (group, topic); guarded by `changed`."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    topics: dict[str, list[Record]] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    ids: dict[tuple[str, str], Record] = field(default_factory=dict)
    waiting: dict[tuple[str, str], deque[tuple[Record, int, float]]] = field(default_factory=dict)
    read_to: dict[tuple[str, str], int] = field(default_factory=dict)
    leases: dict[bytes, tuple[tuple[str, str], Lease]] = field(default_factory=dict)
    dead: list[tuple[str, Record, str | None]] = field(default_factory=list)
    done: list[Record] = field(default_factory=list)
    settled: set[bytes] = field(default_factory=set)  # a repeated DONE is taken, as the engine does
    receipts: int = 0
    missing: set[str] = field(default_factory=set)  # topics that pulls are told to be undefined
    lease_ms: int = 30_000  # the group's setting

    def store(self, message: Any) -> tuple[int, Record]:
        known = self.ids.get((message.topic, message.id)) if message.id else None
        if known:
            return Code.DUPLICATE, known
        records = self.topics.setdefault(message.topic, [])
        queue = zlib.crc32((message.key or "").encode()) % QUEUES
        offset = self.ends.get((message.topic, queue), 0)
        self.ends[message.topic, queue] = offset + 1
        record = Record(message, message.id or f"{len(self.ids):032x}", queue, offset, int(time.time() * 1000))
        records.append(record)
        self.ids[message.topic, record.id] = record
        self.changed.notify_all()
        return Code.OK, record

    def take(self, group: str, topics: list[str], count: int, invisible_s: float) -> list[tuple[bytes, Lease]]:
        now = time.monotonic()
        for receipt, (place, lease) in list(self.leases.items()):
            if lease.until <= now:
                del self.leases[receipt]
                self.waiting.setdefault(place, deque()).append((lease.record, lease.attempt + 1, 0.0))
        taken: list[tuple[bytes, Lease]] = []
        for topic in topics:
            place = (group, topic)
            again = self.waiting.setdefault(place, deque())
            for _ in range(len(again)):
                record, attempt, due = again.popleft()
                if due > now or len(taken) >= count:
                    again.append((record, attempt, due))
                else:
                    taken.append(self._lease(place, Lease(record, attempt, now + invisible_s)))
            start = self.read_to.get(place, 0)
            fresh = self.topics.get(topic, [])[start : start + count - len(taken)]
            self.read_to[place] = start + len(fresh)
            taken += [self._lease(place, Lease(record, 1, now + invisible_s)) for record in fresh]
        return taken

    def _lease(self, place: tuple[str, str], lease: Lease) -> tuple[bytes, Lease]:
        self.receipts += 1
        receipt = b"\x00\xff" + struct.pack("<Q", self.receipts)
        self.leases[receipt] = (place, lease)
        return receipt, lease

    def settle(self, ack: Any) -> int:
        found = self.leases.get(ack.receipt)
        if found is None:
            is_repeated = ack.receipt in self.settled and not ack.verdict
            return Code.OK if is_repeated else Code.STALE_RECEIPT
        place, lease = found
        verdict = ack.verdict or Verdict.DONE
        if verdict == Verdict.EXTEND:
            lease.until = time.monotonic() + (ack.delay_ms or 30_000) / 1000
            return Code.OK
        del self.leases[ack.receipt]
        if verdict == Verdict.DONE:
            self.done.append(lease.record)
            self.settled.add(ack.receipt)
        elif verdict == Verdict.RELEASE:
            self.waiting.setdefault(place, deque()).append((lease.record, lease.attempt, 0.0))
        elif verdict == Verdict.REJECT:
            self.dead.append((place[0], lease.record, ack.reason))
        else:
            due = time.monotonic() + (ack.delay_ms or 0) / 1000
            self.waiting.setdefault(place, deque()).append((lease.record, lease.attempt + 1, due))
        self.changed.notify_all()
        return Code.OK


class FakeProxy:
    """One listening port. `calls` are the received requests, `faults` those of the next calls."""

    def __init__(self, penstock: "FakePenstock", service: Any, port: int = 0) -> None:
        self.penstock = penstock
        self.store = penstock.store
        self.faults: deque[Fault] = deque()
        self.calls: list[Any] = []
        self.connections = 0
        self.closed = False
        self.processor = TProcessor(service, self)
        self.listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.host, self.port = self.listener.getsockname()[:2]
        self.open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def close(self) -> None:
        """Refuse new connections and cut the open ones."""
        self.closed = True
        for stale in (self.listener, *list(self.open)):
            try:
                stale.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            stale.close()

    def send(self, request: Any) -> Any:
        fault = self._next_fault(request)
        results = []
        with self.store.changed:
            refusal = self.penstock.refusal(request.credential)
            for position, message in enumerate(request.messages):
                if refusal:
                    results.append(producer_thrift.SendResult(code=refusal, error="the credential is not valid"))
                elif fault.hits(position):
                    results.append(
                        producer_thrift.SendResult(
                            code=fault.code, retry_after_ms=fault.retry_after_ms, error="a fault"
                        )
                    )
                else:
                    code, record = self.store.store(message)
                    results.append(
                        producer_thrift.SendResult(code=code, id=record.id, queue=record.queue, offset=record.offset)
                    )
        if fault.drop == "after":
            raise Dropped
        return producer_thrift.SendResponse(results=results)

    def pull(self, request: Any) -> Any:
        fault = self._next_fault(request)
        refusal = self.penstock.refusal(request.credential) or fault.code
        if refusal:
            return self._answer(code=refusal, retry_after_ms=fault.retry_after_ms, error="refused")
        count = 32 if request.max_messages is None else request.max_messages
        until = time.monotonic() + min(request.wait_ms or 0, self.penstock.wait_ms_max) / 1000
        with self.store.changed:
            acks = [consumer_thrift.AckResult(code=self.store.settle(ack)) for ack in request.acks or ()]
            missing = self._missing(request) if count else []
            if missing and len(missing) == len(request.topics):
                return self._answer(code=Code.UNKNOWN_TOPIC, ack_results=acks, error=f"there is no topic {missing[0]}")
            taken = self._take(request, count)
            while count and not taken and time.monotonic() < until and self._missing(request) == missing:
                if self.closed or self.penstock.closed:
                    raise Dropped
                self.store.changed.wait(min(0.05, max(0.0, until - time.monotonic())))
                taken = self._take(request, count)
        if fault.drop == "after":
            raise Dropped
        reports = [consumer_thrift.TopicReport(code=Code.UNKNOWN_TOPIC, topic=each, error="gone") for each in missing]
        deliveries = [_delivery(*lease) for lease in taken]
        lease_ms = None if request.invisible_ms else self.store.lease_ms
        return self._answer(
            code=Code.OK, ack_results=acks, deliveries=deliveries, topics=reports or None, invisible_ms=lease_ms
        )

    def _missing(self, request: Any) -> list[str]:
        return [topic for topic in request.topics or () if topic in self.store.missing]

    def _take(self, request: Any, count: int) -> list[tuple[bytes, Lease]]:
        topics = [topic for topic in request.topics or () if topic not in self.store.missing]
        return self.store.take(request.group, topics, count, (request.invisible_ms or self.store.lease_ms) / 1000)

    def _answer(self, **fields: Any) -> Any:
        return consumer_thrift.PullResponse(**{"deliveries": [], "ack_results": [], **fields})

    def _next_fault(self, request: Any) -> Fault:
        self.calls.append(request)
        if not self.faults:
            return Fault()
        fault = self.faults[0]
        fault.times -= 1
        if fault.times <= 0:
            self.faults.popleft()
        if fault.drop == "before":
            raise Dropped
        return fault

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        raw = connection
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.penstock.ssl_context:
                connection = self.penstock.ssl_context.wrap_socket(connection, server_side=True)
            self._serve_calls(connection)
        except Exception:
            pass  # a client's fault ends only its own connection
        finally:
            self.open.discard(raw)
            connection.close()

    def _serve_calls(self, connection: socket.socket) -> None:
        """Answer call after call. The first byte tells buffered from framed; TLS cannot peek and is taken as framed."""
        tls = isinstance(connection, ssl.SSLSocket)
        framed = tls or connection.recv(1, socket.MSG_PEEK) != b"\x80"
        plain = TSocket()
        plain.set_handle(connection)
        transport = TCyFramedTransport(plain) if framed else TCyBufferedTransport(plain)
        protocol = TCyBinaryProtocol(transport)
        trusted = False
        while not self.penstock.closed:
            if framed and not tls and not trusted:
                head = connection.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL)
                if len(head) < 4 or struct.unpack(">I", head)[0] > UNTRUSTED_FRAME_BYTES_MAX:
                    return
            self.processor.process(protocol, protocol)
            trusted = True


def _delivery(receipt: bytes, lease: Lease) -> Any:
    record = lease.record
    return consumer_thrift.Delivery(
        receipt=receipt,
        queue=record.queue,
        offset=record.offset,
        attempt=lease.attempt,
        stored_at_ms=record.stored_at_ms,
        id=record.id,
        message=record.message,
    )


class FakePenstock:
    """Several producer and consumer proxies over one store, with one application that has all grants.

    Args:
        producers, consumers: how many ports of each.
        ssl_context: serve TLS (framed only) instead of plain TCP.
    """

    app, key_id, secret = "shop", "k1", "correct horse battery staple"

    def __init__(self, producers: int = 1, consumers: int = 1, ssl_context: ssl.SSLContext | None = None) -> None:
        self.store = Store()
        self.ssl_context = ssl_context
        self.closed = False
        self.wait_ms_max = 30_000
        self.producers = [FakeProxy(self, producer_thrift.Producer) for _ in range(producers)]
        self.consumers = [FakeProxy(self, consumer_thrift.Consumer) for _ in range(consumers)]

    def __enter__(self) -> "FakePenstock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True
        for proxy in self.producers + self.consumers:
            proxy.close()

    @property
    def producer(self) -> tuple[str, int]:
        return self.producers[0].host, self.producers[0].port

    @property
    def consumer(self) -> tuple[str, int]:
        return self.consumers[0].host, self.consumers[0].port

    @property
    def producer_endpoints(self) -> str:
        return ",".join(proxy.address for proxy in self.producers)

    @property
    def consumer_endpoints(self) -> str:
        return ",".join(proxy.address for proxy in self.consumers)

    def refusal(self, credential: Any) -> int | None:
        signed = f"penstock/1\n{credential.app}\n{credential.key_id}\n{credential.issued_at_ms}"
        signature = hmac.new(self.secret.encode(), signed.encode(), hashlib.sha256).digest()
        fresh = abs(time.time() * 1000 - credential.issued_at_ms) <= 300_000
        known = (credential.app, credential.key_id) == (self.app, self.key_id)
        valid = known and fresh and hmac.compare_digest(signature, credential.signature)
        return None if valid else Code.UNAUTHENTICATED


def main() -> None:
    """Serve until a signal and print addresses and credentials as one JSON line."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=1)
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with FakePenstock(options.producers, options.consumers) as fake:
        print(
            json.dumps(
                {
                    "producers": fake.producer_endpoints,
                    "consumers": fake.consumer_endpoints,
                    "app": fake.app,
                    "key_id": fake.key_id,
                    "secret": fake.secret,
                }
            ),
            flush=True,
        )
        stop.wait()


if __name__ == "__main__":
    main()
