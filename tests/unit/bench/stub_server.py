"""A server whose answers a test writes: real sockets, real frames, one thread a connection."""

import socket
import threading
from collections.abc import Callable
from typing import Any

from bench.generator import LoadTarget
from bench.settings import LoadSettings
from common.contract import (
    AckResult,
    Code,
    Delivery,
    Message,
    PullResponse,
    SendResponse,
    SendResult,
    decode_call,
    encode_reply,
)

# handler(method, seqid, request) → a response struct, a frame's bytes, or None to close the connection
Handler = Callable[[str, int, Any], Any]


class StubServer:
    """Answers on 127.0.0.1 until it is left; what a handler raises is raised again on leaving."""

    def __init__(self, handler: Handler):
        self._handler = handler
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._faults: list[BaseException] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> "StubServer":
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
        if self._faults:
            raise self._faults[0]

    @property
    def target(self) -> LoadTarget:
        address = self._listener.getsockname()
        return LoadTarget(address, address, "app", "key", "secret")

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(end,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, end: socket.socket) -> None:
        try:
            with end, end.makefile("rb") as stream:
                while size := stream.read(4):
                    answer = self._answer(stream.read(int.from_bytes(size, "big")))
                    if answer is None:
                        return
                    end.sendall(len(answer).to_bytes(4, "big") + answer)
        except ConnectionError:
            pass  # the run ended on a fault and closed its connections
        except BaseException as fault:
            self._faults.append(fault)

    def _answer(self, frame: bytes) -> bytes | None:
        name, seqid, arguments = decode_call(frame)
        answer = self._handler(name, seqid, arguments.request)
        return answer if answer is None or isinstance(answer, bytes) else encode_reply(name, seqid, answer)


def all_ok(name: str, seqid: int, request: Any) -> Any:
    """Stores everything, delivers nothing."""
    if name == "pull":
        return PullResponse(
            code=Code.OK, deliveries=[], ack_results=[AckResult(code=Code.OK) for _ in request.acks or ()]
        )
    return sent([Code.OK] * len(request.messages))


def sent(codes: list[int]) -> SendResponse:
    return SendResponse(results=[SendResult(code=code, id="0" * 32, queue=3, offset=7) for code in codes])


def delivery(receipt: bytes, body: bytes, attempt: int = 1) -> Delivery:
    message = Message(topic="bench-0", body=body, properties={"a": "b"})
    return Delivery(receipt=receipt, queue=0, offset=5, attempt=attempt, stored_at_ms=1, id="0" * 32, message=message)


def settings(**changes: Any) -> LoadSettings:
    """A short run that is over by a count or quickly by time."""
    return LoadSettings(**{"connections": 2, "topics": 3, "seconds": 5.0, "warmup_s": 0.0, "timeout_s": 5.0, **changes})
