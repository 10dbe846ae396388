"""The pure-Python twin of `_batcher`: same lanes, same bytes, a greenlet that reads and one that writes."""

import struct
import time
from collections import OrderedDict
from typing import Any, NamedTuple

import gevent
from gevent import socket as gevent_socket

from common.keyhash import queue_of
from common.limits import QueueLimit
from engine.link import layout

FRAME_BYTES_MAX = 24 << 20
_BATCH = struct.Struct("<IIHBBIIIIIQq")
MAGIC = 0x5042


class Destination:
    """A topic as the broker knows it. Made when the first message for it comes; void when the broker's log_id changes."""

    __slots__ = (
        "_next_queue", "_sticky", "body_bytes_max", "buffered", "checked_at", "diverted", "durability", "grade", "id_window_ms",
        "is_special", "meter", "name", "queues", "topic_id",
    )  # fmt: skip

    def __init__(
        self, name: bytes, topic_id: int, queues: int, durability: int, body_bytes_max: int, id_window_ms: int = 0
    ):
        self.name, self.topic_id, self.queues = name, topic_id, queues
        self.id_window_ms = id_window_ms
        self.durability, self.body_bytes_max = durability, body_bytes_max
        self.checked_at = self._next_queue = 0
        self.buffered = self.diverted = False
        self.meter, self.grade, self.is_special = None, 0, False
        self._sticky: dict[int, tuple[int, int]] = {}

    def choose_queue(self, lane: int, append: int, key: bytes | None) -> int:
        """A key's own queue; without a key one queue for the whole append, the next for the next."""
        if key is not None:
            return queue_of(key, self.queues)
        if self._sticky.get(lane, (0, 0))[0] != append:
            self._sticky[lane] = (append, self._next_queue)
            self._next_queue = (self._next_queue + 1) % self.queues
        return self._sticky[lane][1]


class Destinations:
    """Destinations by name, at most `count_max`; a full one forgets who was not asked for longest."""

    def __init__(self, count_max: int):
        self._by_name: OrderedDict[bytes, Destination] = OrderedDict()
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: bytes) -> Destination | None:
        """The destination, or None."""
        found = self._by_name.get(name)
        if found is not None:
            self._by_name.move_to_end(name)
        return found

    def put(self, destination: Destination) -> None:
        """Keep it, in place of the one of the same name."""
        self._by_name.pop(destination.name, None)
        if len(self._by_name) >= self._count_max:
            self._by_name.popitem(last=False)
        self._by_name[destination.name] = destination

    def clear(self) -> None:
        self._by_name.clear()


class Run(NamedTuple):
    """Records that become one batch, each with who waits for it."""

    topic_id: int
    queue: int
    id_window_ms: int
    members: list


class Append:
    """What one append carries: runs in the order in which they began, the last one of each queue by (topic id, queue)."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.calls: list = []
        self.count, self.started_at = 0, time.monotonic()
        self._open: dict[tuple[int, int], Run] = {}
        self.size = layout.HEADER_SIZE + layout.APPEND_HEAD.size

    def add(self, topic_id: int, queue: int, id_window_ms: int, member: tuple) -> None:
        """Into the queue's last run; a message whose id is to be checked is a run of its own, and later ones come behind it."""
        run = self._open.get((topic_id, queue))
        if run is None or id_window_ms or run.id_window_ms:
            run = self._open[topic_id, queue] = Run(topic_id, queue, id_window_ms, [])
            self.runs.append(run)
        run.members.append(member)

    def encode(self, request_id: int, durability: int) -> bytes:
        out = bytearray(layout.APPEND_HEAD.pack(durability, len(self.runs)))
        for topic_id, queue, window_ms, members in self.runs:
            records = b"".join(record for record, _, _ in members)
            size = layout.BATCH_HEADER_SIZE + len(records)
            flags = layout.CHECK_IDS if window_ms else 0
            out += _BATCH.pack(0, size, MAGIC, 0, flags, 0, topic_id, queue, len(members), window_ms, 0, 0)
            out += records + bytes(-size % 8)
        return layout.frame(layout.APPEND, request_id, bytes(out))

    def answer(self, payload: bytes) -> None:
        if len(payload) != len(self.runs) * layout.APPEND_RESULT.size:
            return self.answer_all(layout.TIMEOUT)
        for run, (code, first_queue, offset) in zip(self.runs, layout.APPEND_RESULT.iter_unpack(payload), strict=True):
            queue = first_queue if code == layout.DUPLICATE else run.queue
            for step, (_, results, index) in enumerate(run.members):
                results[index] = (code, queue, offset + step)
        return self._finish()

    def answer_all(self, code: int) -> None:
        """One code for every message."""
        for run in self.runs:
            for _, results, index in run.members:
                results[index] = (code, run.queue, -1)
        self._finish()

    def _finish(self) -> None:
        for results, callback in self.calls:
            callback(results)


class Lane:
    """One connection to one broker for one class of durability; see `_batcher.Lane`."""

    def __init__(self, number: int, in_flight_max: int):
        self.number, self.in_flight_max = number, in_flight_max
        self.on_down = None
        self.link: Any = None
        self.appends = self.messages = self.waiting = 0
        self.limit = QueueLimit()
        self._filling = Append()
        self._flying: list[tuple[int, Append]] = []
        self._append_number, self._request_id = 1, 0
        self._asked = False

    @property
    def idle(self) -> bool:
        return not self._flying and not self._filling.runs

    def use(self, fd: int, peer: str) -> None:
        """Send over this connected, authenticated socket from now on; owns it."""
        self.link = gevent_socket.socket(fileno=fd)
        gevent.spawn(self._read, self.link)

    def drop(self, reason: str) -> None:
        if self.link is not None:
            self._lost(self.link)

    def submit(self, messages, callback) -> bool:
        """See `_batcher.Lane.submit`."""
        total = sum(len(encoded) + 96 for _, _, _, encoded in messages)
        if self.link is None or self._filling.size + total > FRAME_BYTES_MAX:
            return False
        results = [None] * len(messages)
        if not self._filling.count:
            self._filling.started_at = time.monotonic()
        self._filling.count += len(messages)
        self.waiting += len(messages)
        self._filling.calls.append((results, callback))
        for index, (destination, key, id16, encoded) in enumerate(messages):
            queue = destination.choose_queue(self.number, self._append_number, key)
            body = bytes([0 if id16 is None else 1]) + (id16 or b"") + encoded
            window_ms = destination.id_window_ms if id16 is None else 0
            self._filling.add(
                destination.topic_id, queue, window_ms, (layout.U32.pack(len(body)) + body, results, index)
            )
        self._filling.size += total
        self._ask()
        return True

    def expire(self, now: float) -> None:
        """Only the hot path leaves deadlines to the lane."""
        if self._flying:
            self.limit.look(self._flying[0][1].started_at, now)

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            gevent.get_hub().loop.run_callback(self._send)

    def _send(self) -> None:
        self._asked = False
        if not self._filling.runs or self.link is None or len(self._flying) >= self.in_flight_max:
            return
        append, self._filling = self._filling, Append()
        self._append_number += 1
        self._request_id += 1
        self._flying.append((self._request_id, append))
        self.appends += 1
        self.messages += append.count
        gevent.spawn(self._write, self.link, append.encode(self._request_id, self.number + 1))

    def _write(self, link, frame: bytes) -> None:
        try:
            link.sendall(frame)
        except OSError:
            self._lost(link)

    def _read(self, link) -> None:
        pending = bytearray()
        try:
            while data := link.recv(65_536):
                pending += data
                while len(pending) >= 4 and len(pending) >= (size := 4 + int.from_bytes(pending[:4], "little")):
                    self._answered(bytes(pending[:size]))
                    del pending[:size]
        except OSError:
            pass
        self._lost(link)

    def _answered(self, frame: bytes) -> None:
        _, _, _, code, request_id, _ = layout.HEADER.unpack_from(frame)
        if not self._flying or self._flying[0][0] != request_id:
            return self.drop("answers out of order")
        _, append = self._flying.pop(0)
        self.limit.answered(append.started_at, time.monotonic(), self.waiting)
        self.waiting -= append.count
        if code == layout.OK:
            append.answer(frame[layout.HEADER_SIZE :])
        else:
            append.answer_all(code)
        return self._ask()

    def _lost(self, link) -> None:
        if self.link is not link:
            return
        self.link = None
        link.close()
        flying, self._flying = self._flying, []
        for _, append in flying:
            append.answer_all(layout.TIMEOUT)
        append, self._filling = self._filling, Append()
        self.waiting, self.limit.is_stalled = 0, False
        self._append_number += 1
        append.answer_all(layout.UNAVAILABLE)
        if self.on_down is not None:
            self.on_down(self)
