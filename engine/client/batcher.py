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
SHARE_ALL = 16
_BATCH = struct.Struct("<IIHBBIIIIIQq")
MAGIC = 0x5042


class Destination:
    """A topic as its brokers know it. Made when the first message for it comes; void when a broker's log_id changes.

    Args:
        topic_id: the only broker's; with several they are in `ids`.
        homes, ids: where there are several broker groups, each queue's and each group's topic id; see _batcher.pxd.
    """

    __slots__ = (
        "body_bytes_max", "buffered", "checked_at", "diverted", "durability", "grade", "homes", "id_window_ms", "ids", "is_special",
        "meter", "name", "next_queue", "queues", "sticky", "topic_id",
    )  # fmt: skip

    def __init__(
        self, name: bytes, topic_id: int, queues: int, durability: int, body_bytes_max: int, id_window_ms: int = 0,
        homes: bytes | None = None, ids: bytes | None = None,
    ) -> None:  # fmt: skip
        self.name, self.topic_id, self.queues = name, topic_id, queues
        self.id_window_ms = id_window_ms
        self.durability, self.body_bytes_max = durability, body_bytes_max
        if homes is not None and (ids is None or len(homes) != queues or len(ids) % 4 or max(homes) >= len(ids) // 4):
            raise ValueError("a home for each queue, an id for each home")
        self.homes, self.ids = homes, ids
        self.checked_at = self.next_queue = 0
        self.buffered = self.diverted = False
        self.meter, self.grade, self.is_special = None, 0, False
        self.sticky: dict[int, tuple[int, int]] = {}  # number of the lane -> its append, the queue

    def id_at(self, group: int) -> int:
        """The topic's id at a broker group; 0: not known."""
        return self.topic_id if self.ids is None else layout.U32.unpack_from(self.ids, 4 * group)[0]

    def choose_queue(self, lane: int, append: int, key: bytes | None) -> int:
        """A key's own queue; without a key one queue for the whole append, the next for the next."""
        if key is not None:
            return queue_of(key, self.queues)
        if self.sticky.get(lane, (0, 0))[0] != append:
            self.sticky[lane] = (append, self.next_queue)
            self.next_queue = (self.next_queue + 1) % self.queues
        return self.sticky[lane][1]


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

    def discard(self, name: bytes) -> None:
        """Forget it, if it is there."""
        self._by_name.pop(name, None)

    def clear(self) -> None:
        self._by_name.clear()


class Waiter:
    """Whoever wants the results of messages. `waiting`: appends that owe some."""

    def __init__(self, count: int, callback):
        self.results: list = [None] * count
        self.waiting = 0
        self.callback = callback


class Item:
    """One message of an append; `waiter` None: it was moved. `id_window_ms`: not 0: its id is to be checked.

    `alone`: it is a batch of its own.
    """

    __slots__ = ("alone", "bound", "destination", "id_window_ms", "index", "record", "waiter")

    def __init__(self, destination: Destination, record: bytes, waiter: Waiter | None, index: int, bound: bool):
        self.destination, self.record, self.waiter, self.index, self.bound = destination, record, waiter, index, bound
        self.id_window_ms = 0 if record[4] & layout.HAS_ID else destination.id_window_ms
        self.alone = self.id_window_ms > 0 or bool(record[4] & layout.HAS_TRAILER)


class Run(NamedTuple):
    """Messages that become one batch."""

    topic_id: int
    queue: int
    id_window_ms: int
    alone: bool
    items: list[Item]


class Append:
    """What one append carries: runs in the order in which they began, the last one of each queue by (topic id, queue)."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.waiters: list[Waiter] = []
        self.count, self.started_at = 0, time.monotonic()
        self._open: dict[tuple[int, int], Run] = {}
        self.size = layout.HEADER_SIZE + layout.APPEND_HEAD.size
        self.sent_at = 0.0

    def add(self, topic_id: int, queue: int, item: Item) -> None:
        """Into the queue's last run; a request, or a message whose id is to be checked, is a run of its own. Later ones come behind it."""
        run = self._open.get((topic_id, queue))
        if run is None or item.alone or run.alone:
            run = self._open[topic_id, queue] = Run(topic_id, queue, item.id_window_ms, item.alone, [])
            self.runs.append(run)
        run.items.append(item)
        self.count += 1
        self.size += len(item.record) + 56

    def encode(self, request_id: int, durability: int) -> bytes:
        out = bytearray(layout.APPEND_HEAD.pack(durability, len(self.runs)))
        for topic_id, queue, window_ms, _, items in self.runs:
            records = b"".join(item.record for item in items)
            size = layout.BATCH_HEADER_SIZE + len(records)
            flags = layout.CHECK_IDS if window_ms else 0
            out += _BATCH.pack(0, size, MAGIC, 0, flags, 0, topic_id, queue, len(items), window_ms, 0, 0)
            out += records + bytes(-size % 8)
        return layout.frame(layout.APPEND, request_id, bytes(out))

    def answer(self, payload: bytes) -> None:
        if len(payload) != len(self.runs) * layout.APPEND_RESULT.size:
            return self.answer_all(layout.TIMEOUT)
        for run, (code, first_queue, offset) in zip(self.runs, layout.APPEND_RESULT.iter_unpack(payload), strict=True):
            queue = first_queue if code == layout.DUPLICATE else run.queue
            for step, item in enumerate(run.items):
                if item.waiter is not None:
                    item.waiter.results[item.index] = (code, queue, offset + step)
        return self._finish()

    def answer_all(self, code: int) -> None:
        """One code for every message."""
        for run in self.runs:
            for item in run.items:
                if item.waiter is not None:
                    item.waiter.results[item.index] = (code, run.queue, -1)
        self._finish()

    def forget_moved(self) -> None:
        """Owe nothing to those waiters all of whose messages were moved."""
        still = {id(item.waiter) for run in self.runs for item in run.items if item.waiter is not None}
        for waiter in [waiter for waiter in self.waiters if id(waiter) not in still]:
            waiter.waiting -= 1
            self.waiters.remove(waiter)

    def _finish(self) -> None:
        for waiter in self.waiters:
            waiter.waiting -= 1
            if waiter.waiting == 0:
                waiter.callback(waiter.results)


class Lane:
    """One connection to one broker for one class of durability; see `_batcher.Lane`."""

    def __init__(self, number: int, in_flight_max: int, group: int = 0):
        self.number, self.in_flight_max, self.group = number, in_flight_max, group
        self.share, self.refusing = SHARE_ALL, False
        self.on_down: Any = None
        self.rescue: Any = None
        self.link: Any = None
        self._turn, self._slowest_s = 0, -1.0
        self.appends = self.messages = self.waiting = 0
        self.limit = QueueLimit()
        self.filling = Append()
        self._flying: list[tuple[int, Append]] = []
        self.append_number, self._request_id = 1, 0
        self._asked = False

    @property
    def idle(self) -> bool:
        return not self._flying and not self.filling.runs

    def use(self, fd: int, peer: str) -> None:
        """Send over this connected, authenticated socket from now on; owns it."""
        self.link = gevent_socket.socket(fileno=fd)
        gevent.spawn(self._read, self.link)

    def drop(self, reason: str) -> None:
        if self.link is not None:
            self._lost(self.link)

    @property
    def up(self) -> bool:
        return self.link is not None and not self.refusing

    @property
    def oldest_sent_at(self) -> float | None:
        """See `_batcher.Lane`."""
        return self._flying[0][1].sent_at if self._flying else None

    def take_slowest(self) -> float | None:
        """Seconds of the slowest answer since the last call; None: there was none."""
        slowest, self._slowest_s = self._slowest_s, -1.0
        return slowest if slowest >= 0 else None

    def admits(self) -> bool:
        """Whether the next run of messages that could go elsewhere as well is to come here."""
        if self.link is None or self.share == 0:
            return False
        self._turn = (self._turn + 1) % SHARE_ALL
        return self._turn < self.share

    def lets_in(self, asked: int, grade: int) -> bool:
        """Whether so many more messages of a grade may wait here."""
        return self.limit.admits(self.waiting, asked, grade)

    def has_room(self, size: int) -> bool:
        return self.filling.size + size <= FRAME_BYTES_MAX

    def add(self, destination: Destination, queue: int, record: bytes, waiter: Waiter, index: int, bound: bool) -> None:
        """Take one message, already in the form of a record."""
        append = self.filling
        if not append.waiters:
            append.started_at = time.monotonic()
        if not append.waiters or append.waiters[-1] is not waiter:
            append.waiters.append(waiter)
            waiter.waiting += 1
        append.add(destination.id_at(self.group), queue, Item(destination, record, waiter, index, bound))
        self.waiting += 1
        self._ask()

    def yield_unsent(self) -> None:
        """Let `rescue` take what has not been sent and may go elsewhere; the rest stays."""
        old = self.filling
        if not old.runs or self.rescue is None:
            return
        self.rescue(old, self.group)
        self.filling = Append()
        self.append_number += 1
        for run in old.runs:
            for item in run.items:
                if item.waiter is not None:
                    self.add(item.destination, run.queue, item.record, item.waiter, item.index, item.bound)
                    item.waiter = None
        self.filling.started_at = old.started_at
        self.waiting -= old.count
        old.forget_moved()

    def yield_sent(self) -> None:
        """Let `rescue` take what was sent and may go elsewhere: the broker may store it all the same, under the same ids."""
        if self.rescue is not None:
            for _, append in self._flying:
                self.rescue(append, self.group)

    def expire(self, now: float) -> None:
        """Only the hot path leaves deadlines to the lane."""
        self.limit.look(self._flying[0][1].started_at if self._flying else now, now)

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            gevent.get_hub().loop.run_callback(self._send)

    def _send(self) -> None:
        self._asked = False
        if not self.filling.runs or self.link is None or len(self._flying) >= self.in_flight_max:
            return
        append, self.filling = self.filling, Append()
        append.sent_at = time.monotonic()
        self.append_number += 1
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
        self._slowest_s = max(self._slowest_s, time.monotonic() - append.sent_at)
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
            self._give_up(append, layout.TIMEOUT)
        append, self.filling = self.filling, Append()
        self.waiting, self.limit.is_stalled = 0, False
        self.append_number += 1
        self._give_up(append, layout.UNAVAILABLE)
        if self.on_down is not None:
            self.on_down(self)

    def _give_up(self, append: Append, code: int) -> None:
        if self.rescue is not None:
            self.rescue(append, self.group)
        append.answer_all(code)
