"""What the fake Penstock stores: topics, leases, delayed messages and open requests. In memory, without sockets."""

import struct
import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import thriftpy2

IDL = Path(__file__).resolve().parents[2] / "thrift"
message_thrift = thriftpy2.load(str(IDL / "message.thrift"), module_name="message_thrift")
producer_thrift = thriftpy2.load(str(IDL / "producer.thrift"), module_name="fake_producer_thrift")
consumer_thrift = thriftpy2.load(str(IDL / "consumer.thrift"), module_name="fake_consumer_thrift")
Code = message_thrift.Code
Verdict = consumer_thrift.Verdict

QUEUES = 8


@dataclass
class Record:
    message: Any
    id: str
    queue: int
    offset: int
    stored_at_ms: int
    request: "OpenRequest | None" = None


@dataclass
class OpenRequest:
    """A message whose sender waits for a reply until `by_ms`."""

    token: bytes
    by_ms: int
    reply: Any = None
    is_taken: bool = False
    is_rejected: bool = False


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
    delayed: list[tuple[float, Record]] = field(default_factory=list)
    requests: dict[bytes, OpenRequest] = field(default_factory=dict)
    receipts: int = 0
    missing: set[str] = field(default_factory=set)  # topics that pulls are told to be undefined
    lease_ms: int = 30_000  # the group's setting

    def store(self, message: Any) -> tuple[int, Record]:
        known = self.ids.get((message.topic, message.id)) if message.id else None
        if known:
            return Code.DUPLICATE, known
        queue = zlib.crc32((message.key or "").encode()) % QUEUES
        offset = self.ends.get((message.topic, queue), 0)
        self.ends[message.topic, queue] = offset + 1
        record = Record(message, message.id or f"{len(self.ids):032x}", queue, offset, int(time.time() * 1000))
        self.ids[message.topic, record.id] = record
        if message.delay_ms:
            self.delayed.append((time.monotonic() + message.delay_ms / 1000, record))
        else:
            self.topics.setdefault(message.topic, []).append(record)
        self.changed.notify_all()
        return Code.OK, record

    def cancel(self, message: Any) -> int:
        """The code for a message that withdraws a delayed one."""
        left = [each for each in self.delayed if (each[1].message.topic, each[1].id) != (message.topic, message.id)]
        is_found = len(left) < len(self.delayed)
        self.delayed = left
        return Code.OK if is_found else Code.NOT_CANCELLABLE

    def ask(self, record: Record, wait_ms: int) -> OpenRequest:
        self.receipts += 1
        token = b"\xff\x00" + struct.pack("<Q", self.receipts)
        record.request = self.requests[token] = OpenRequest(token, int(time.time() * 1000) + wait_ms)
        return record.request

    def wait_for_reply(self, request: OpenRequest) -> int:
        """Blocks until the request ends; the code for its sender. The caller has the lock."""
        left_s = request.by_ms / 1000 - time.time()
        self.changed.wait_for(lambda: request.reply or request.is_rejected, max(0.0, left_s))
        del self.requests[request.token]
        if request.reply:
            return Code.OK
        if request.is_rejected:
            return Code.CONSUMER_FAILED
        return Code.NO_REPLY if request.is_taken else Code.NO_CONSUMER

    def reply(self, message: Any) -> int:
        request = self.requests.get(message.reply_to)
        if request is None or request.reply:
            return Code.STALE_RECEIPT
        request.reply = message
        self.changed.notify_all()
        return Code.OK

    def take(self, group: str, topics: list[str], count: int, invisible_s: float) -> list[tuple[bytes, Lease]]:
        now = time.monotonic()
        for due, record in [each for each in self.delayed if each[0] <= now]:
            self.delayed.remove((due, record))
            self.topics.setdefault(record.message.topic, []).append(record)
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
        if lease.record.request:
            lease.record.request.is_taken = True
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
            if lease.record.request:
                lease.record.request.is_rejected = True
        else:
            due = time.monotonic() + (ack.delay_ms or 0) / 1000
            self.waiting.setdefault(place, deque()).append((lease.record, lease.attempt + 1, due))
        self.changed.notify_all()
        return Code.OK
