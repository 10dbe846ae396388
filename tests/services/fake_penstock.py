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
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TProcessor
from thriftpy2.transport import TSocket
from thriftpy2.transport.buffered import TCyBufferedTransport
from thriftpy2.transport.framed import TCyFramedTransport

from tests.services.fake_store import Code, Lease, Store, consumer_thrift, message_thrift, producer_thrift

UNTRUSTED_FRAME_BYTES_MAX = 65_536
HANG_S = 30.0


@dataclass
class Fault:
    """Faults of the next `times` calls of one proxy.

    Attributes:
        code: answered instead of doing the work; None: do the work.
        retry_after_ms: told with the code; a list: of each message of the call.
        messages: positions within the call that the code applies to; None: all. The others are stored as usual.
        error: the sentence told with the code, of a send.
        drop: "before" closes the connection without doing the work, "after" does it and then closes, "hang" neither does
            it nor answers.
        exception: the type of an application exception of Thrift that is answered instead of doing the work.
        foreign: bytes that are answered instead, after which the connection is closed.
    """

    code: int | None = None
    retry_after_ms: int | list[int] | None = None
    messages: set[int] | None = None
    error: str | None = "a fault"
    drop: str = ""
    exception: int | None = None
    foreign: bytes = b""
    times: int = 1

    def told_ms(self, position: int) -> int | None:
        return self.retry_after_ms[position] if isinstance(self.retry_after_ms, list) else self.retry_after_ms

    def hits(self, position: int) -> bool:
        return self.code is not None and (self.messages is None or position in self.messages)


class Dropped(Exception):
    """Ends the connection without an answer, or with bytes that are none."""

    def __init__(self, foreign: bytes = b"") -> None:
        self.foreign = foreign


class Processor(TProcessor):
    """Answers an application exception that a handler raises, as that of a method which is not served."""

    def process(self, iprot: Any, oprot: Any) -> None:
        api, seqid, result, call = self.process_in(iprot)
        if not isinstance(result, TApplicationException):
            try:
                result.success = call()
            except TApplicationException as raised:
                result = raised
        if isinstance(result, TApplicationException):
            self.send_exception(oprot, api, result, seqid)
        else:
            self.send_result(oprot, api, result, seqid)


class FakeProxy:
    """One listening port. `calls` are the received requests, `faults` those of the next calls."""

    def __init__(self, penstock: "FakePenstock", service: Any, port: int = 0) -> None:
        self.penstock = penstock
        self.store = penstock.store
        self.faults: deque[Fault] = deque()
        self.calls: list[Any] = []
        self.connections = 0
        self.closed = False
        self.reserved: socket.socket | None = None
        self.processor = Processor(service, self)
        self.listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.host, self.port = self.listener.getsockname()[:2]
        self.open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def close(self) -> None:
        """Refuse new connections and cut the open ones.

        The port stays ours until the fake is closed. A free port may be given to a proxy of another fake, perhaps one of
        the other service, which a client rightly calls an error of its configuration.
        """
        self.closed = True
        sockets = (self.listener, *list(self.open))
        for stale in sockets:
            with suppress(OSError):
                stale.shutdown(socket.SHUT_RDWR)
        if not self.penstock.closed:
            # Bound before the listener is closed, so that the port is never free in between.
            self.reserved = socket.socket()
            self.reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a FakeProxy of this port may listen
            self.reserved.bind((self.host, self.port))
        for stale in sockets:
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
                            code=fault.code, retry_after_ms=fault.told_ms(position), error=fault.error
                        )
                    )
                else:
                    results.append(self._taken(message, request.reply_wait_ms))
        if fault.drop == "after":
            raise Dropped
        return producer_thrift.SendResponse(results=results)

    def _taken(self, message: Any, reply_wait_ms: int | None) -> Any:
        if message.operation:
            return producer_thrift.SendResult(code=self.store.cancel(message), id=message.id, error="a cancellation")
        if message.reply_to is not None:
            return producer_thrift.SendResult(code=self.store.reply(message), id=message.id, error="a reply")
        code, record = self.store.store(message)
        reply = None
        if reply_wait_ms:
            request = self.store.ask(record, reply_wait_ms)
            code, reply = self.store.wait_for_reply(request), request.reply
        return producer_thrift.SendResult(
            code=code, id=record.id, queue=record.queue, offset=record.offset, reply=reply
        )

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
                self.store.changed.wait(min(0.05, max(0.0, until - time.monotonic())))
                if self.closed or self.penstock.closed:
                    raise Dropped
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
        if fault.drop == "hang":
            self.penstock.stopping.wait(HANG_S)
        if fault.drop in ("before", "hang"):
            raise Dropped
        if fault.foreign:
            raise Dropped(fault.foreign)
        if fault.exception is not None:
            raise TApplicationException(fault.exception, "a fault")
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
        except Dropped as dropped:
            with suppress(OSError):
                connection.sendall(dropped.foreign)
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
        reply_token=record.request and record.request.token,
        reply_by_ms=record.request and record.request.by_ms,
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
        self.stopping = threading.Event()
        self.wait_ms_max = 30_000
        self.clock_ahead_s = 0.0  # of the proxies' clock, as seen by the clients
        self.producers = [FakeProxy(self, producer_thrift.Producer) for _ in range(producers)]
        self.consumers = [FakeProxy(self, consumer_thrift.Consumer) for _ in range(consumers)]

    def __enter__(self) -> "FakePenstock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True
        self.stopping.set()
        for proxy in self.producers + self.consumers:
            proxy.close()
            if proxy.reserved:
                proxy.reserved.close()

    def forget(self) -> None:
        """Forgets calls and faults, so that one test can make several of the same kind."""
        for proxy in self.producers + self.consumers:
            proxy.calls.clear()
            proxy.faults.clear()

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

    def credential(self) -> Any:
        now_ms = int((time.time() + self.clock_ahead_s) * 1000)
        signature = self._signature(self.app, self.key_id, now_ms)
        return message_thrift.Credential(app=self.app, key_id=self.key_id, issued_at_ms=now_ms, signature=signature)

    def refusal(self, credential: Any) -> int | None:
        signature = self._signature(credential.app, credential.key_id, credential.issued_at_ms)
        fresh = abs((time.time() + self.clock_ahead_s) * 1000 - credential.issued_at_ms) <= 300_000
        known = (credential.app, credential.key_id) == (self.app, self.key_id)
        valid = known and fresh and hmac.compare_digest(signature, credential.signature)
        return None if valid else Code.UNAUTHENTICATED

    def _signature(self, app: str, key_id: str, issued_at_ms: int) -> bytes:
        signed = f"penstock/1\n{app}\n{key_id}\n{issued_at_ms}"
        return hmac.new(self.secret.encode(), signed.encode(), hashlib.sha256).digest()


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
