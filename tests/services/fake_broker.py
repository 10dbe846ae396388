"""Broker in memory that implements the link, for tests of proxies: it answers, refuses, stalls or disconnects on demand."""

import json
import struct
from collections import Counter

import gevent
from gevent import socket as gevent_socket
from gevent.event import Event
from gevent.server import StreamServer

from engine.link import layout
from engine.link.proof import client_proof, engine_proof, transcript
from engine.link.timer import Timer, parse

KEY = b"k" * 32
_BATCH = struct.Struct("<IIHBBIIIIIQq")


class FakeBroker:
    """Listens on loopback. `stored[(topic id, queue)]` is the list of (id16 or None, encoded message) by offset."""

    def __init__(self, log_id: str = "a" * 32):
        self.log_id, self.epoch = log_id, "1"
        self.broker_group, self.end_position = "g", 0
        self.topics: dict[str, dict] = {}
        self.refused: set[str] = set()  # topics above a quota
        self.stored: dict[tuple[int, int], list] = {}
        self.appends: list[tuple[int, int]] = []  # (durability, batches)
        self.greeted: Counter[str] = Counter()  # links opened, by the log id and by the epoch in their HELLO
        self.go = Event()  # cleared: appends are stored, their answers wait
        self.go.set()
        self.resolves = Event()  # cleared: questions about topics wait
        self.resolves.set()
        self.questions = 0  # about topics
        self.seconds_a_message = 0.0  # more: a slow broker, of this capacity
        self.code = 0  # of every append's answer
        self.batch_code = 0
        self.unknown_topics: set[int] = set()  # ids that it has forgotten
        self.refused_topics: set[int] = set()  # ids whose batches are answered UNAVAILABLE
        self.first_queue = 0  # of every duplicate's answer
        self.timers: list[Timer] = []
        self.checked: list[tuple[int, int, int]] = []  # (topic id, queue, window) of batches whose id is to be checked
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self._sockets: set = set()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._server.server_port

    def stop(self) -> None:
        self._server.stop(timeout=0)
        self.break_links()

    def break_links(self) -> None:
        for sock in list(self._sockets):
            try:
                sock.shutdown(gevent_socket.SHUT_RDWR)
            except OSError:
                pass

    def _serve(self, sock, _) -> None:
        self._sockets.add(sock)
        nonce, greeting = b"n" * 16, bytearray()
        file = sock.makefile("rb")
        try:
            while head := file.read(layout.HEADER_SIZE):
                size, op, _, _, request, _ = layout.HEADER.unpack(head)
                payload = file.read(size + 4 - layout.HEADER_SIZE)
                if op == layout.WINDOW:
                    continue
                if op in (layout.HELLO, layout.AUTH):
                    code, answer = self._greet(op, payload, nonce, greeting)
                else:
                    code, answer = self._answer(op, payload)
                sock.sendall(layout.frame(op, request, answer, code, 1))
        except OSError:
            pass
        finally:
            self._sockets.discard(sock)
            sock.close()

    def _greet(self, op: int, payload: bytes, nonce: bytes, greeting: bytearray) -> tuple[int, bytes]:
        """Serve HELLO or AUTH. `greeting`: of this connection, kept from one to the other."""
        if op == layout.HELLO:
            answer = json.dumps({"version": layout.VERSION, "nonce": nonce.hex(), **self._identity()}).encode()
            greeting[:] = transcript(payload, answer)
            return 0, answer
        self.greeted[self.log_id] += 1
        self.greeted[self.epoch] += 1
        assert payload == client_proof(KEY, bytes(greeting))
        return 0, engine_proof(KEY, bytes(greeting))

    def _identity(self) -> dict[str, object]:
        return {
            "log_id": self.log_id, "epoch": self.epoch, "broker_group": self.broker_group,
            "end_position": self.end_position, "durable_position": self.end_position,
        }  # fmt: skip

    def _answer(self, op: int, payload: bytes) -> tuple[int, bytes]:
        if op == layout.TOPIC and any(topic["name"] in self.refused for topic in json.loads(payload)["topics"]):
            return layout.QUOTA_EXCEEDED, b"the application may create no more topics"
        if op == layout.TOPIC:
            self.questions += 1
            self.resolves.wait()
            return 0, json.dumps({"topics": [self._topic(**topic) for topic in json.loads(payload)["topics"]]}).encode()
        if op == layout.TIMER_ADD:
            return self._add_timers(payload)
        if op == layout.TIMER_CANCEL:
            return self._cancel_timer(json.loads(payload)["id"])
        if op == layout.ADMIN:
            return 0, json.dumps({"topics": [{"name": name, **topic} for name, topic in self.topics.items()]}).encode()
        if op == layout.LOOK_UP_ID:
            return self._look_up(**json.loads(payload))
        if op == layout.CLAIM:
            return 0, json.dumps(
                {"ids": [[0, queue, None] for _, _, _, queue, _ in json.loads(payload)["ids"]]}
            ).encode()
        if op in (layout.LEASE, layout.BACKLOG):
            return layout.UNAVAILABLE, b"this broker lends nothing and knows no lag"
        assert op == layout.APPEND
        return self._append(payload)

    def _topic(self, name: str, queues: int) -> dict:
        topic = self.topics.setdefault(name, {"id": len(self.topics) + 1, "queues": queues})
        topic["queues"] = max(topic["queues"], queues)
        return topic

    def _add_timers(self, payload: bytes) -> tuple[int, bytes]:
        count, at = layout.APPEND_HEAD.unpack_from(payload)[1], layout.APPEND_HEAD.size
        while at < len(payload):
            self.timers.append(parse(payload, at))
            at += 4 + int.from_bytes(payload[at : at + 4], "little")
        return 0, layout.APPEND_RESULT.pack(0, 0, 0) * count

    def _cancel_timer(self, shown_id: str) -> tuple[int, bytes]:
        left = [timer for timer in self.timers if timer.shown_id.decode() != shown_id]
        if len(left) == len(self.timers):
            return layout.NOT_CANCELLABLE, b"no such delayed message, or already delivered"
        self.timers = left
        return 0, b""

    def _look_up(self, topic: str, id: str, **_) -> tuple[int, bytes]:
        """The stored messages of the topic that were assigned this id."""
        if topic not in self.topics:
            return layout.UNKNOWN_TOPIC, b"unknown"
        head = json.dumps({"next": None}).encode()
        found = [
            layout.PIECE.pack(layout.NO_TOKEN, offset, 0, queue, 1, 0, 0, 0, 0)
            for (topic_id, queue), run in self.stored.items()
            for offset, (id16, _) in enumerate(run)
            if topic_id == self.topics[topic]["id"] and id16 is not None and id16.hex() == id
        ]
        answer = (layout.U32.pack(len(head)), head, layout.U32.pack(len(found)), *found)
        return layout.OK, b"".join(answer)

    def _append(self, payload: bytes) -> tuple[int, bytes]:
        durability, count = layout.APPEND_HEAD.unpack_from(payload)
        self.appends.append((durability, count))
        self.go.wait()
        if self.seconds_a_message:
            gevent.sleep(self.seconds_a_message * _messages(payload, count))
        if self.code:
            return self.code, b"refused by the test"
        at, answer = layout.APPEND_HEAD.size, b""
        for _ in range(count):
            _, size, magic, kind, flags, _, topic_id, queue, records, window_ms, _, _ = _BATCH.unpack_from(payload, at)
            assert (magic, kind) == (0x5042, 0)
            if flags:
                self.checked.append((topic_id, queue, window_ms))
            run = self.stored.setdefault((topic_id, queue), [])
            code = layout.UNAVAILABLE if topic_id in self.refused_topics else self.batch_code
            if topic_id in self.unknown_topics:
                code = layout.UNKNOWN_TOPIC
            first_queue = self.first_queue if code == layout.DUPLICATE else 0
            answer += layout.APPEND_RESULT.pack(code, first_queue, len(run))
            found = list(_records(payload[at + layout.BATCH_HEADER_SIZE : at + size]))
            assert len(found) == records
            if not code:
                run += found
            at += size + -size % 8
        assert at == len(payload)
        return 0, answer + layout.APPEND_END.pack(self.end_position)


def _messages(payload: bytes, count: int) -> int:
    """Count the messages of an append's batches."""
    at, total = layout.APPEND_HEAD.size, 0
    for _ in range(count):
        _, size, _, _, _, _, _, _, records, _, _, _ = _BATCH.unpack_from(payload, at)
        total += records
        at += size + -size % 8
    return total


def _records(data: bytes):
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        body = data[at + 4 : at + 4 + size]
        yield (body[1:17], body[17:]) if body[0] & 1 else (None, body[1:])
        at += 4 + size


def wait_until(condition, timeout_s: float = 3.0) -> None:
    """Run greenlets until the condition holds; fail when it does not in time."""
    with gevent.Timeout(timeout_s, AssertionError(f"not within {timeout_s} s: {condition}")):
        while not condition():
            gevent.sleep(0.001)
