"""A lane: messages on their way to one broker. The reference of `_lane`: same answers, same bytes.

One greenlet per link reads, and one per append writes.
"""

import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent import socket as gevent_socket

from common.limits import QueueLimit
from engine.client.append_request import AppendItem, AppendRequest, Waiter
from engine.client.destination import Destination
from engine.client.durability import LaneRow
from engine.link import layout

FRAME_BYTES_MAX = 24 << 20
SHARE_ALL = 16


class Lane:
    """One connection to one broker, for the durability classes that it serves.

    Args:
        row: of durability.LANES.
        group: the broker group's number.
    """

    def __init__(self, row: LaneRow, group: int = 0) -> None:
        self.number, self.durability, self.in_flight_max, self.group = (
            row.number,
            row.durability,
            row.in_flight_max,
            group,
        )
        self.share, self.refusing = SHARE_ALL, False
        self.on_down: Any = None
        self.rescue: Any = None
        self.on_unknown_id: Callable[[int], object] = lambda topic_id: None
        self.link: Any = None
        self._turn, self._slowest_s = 0, -1.0
        self.appends = self.messages = self.waiting = 0
        self.limit = QueueLimit()
        self.filling = AppendRequest()
        self._flying: list[tuple[int, AppendRequest]] = []
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
        """When the append that has waited longest for its answer was sent, in monotonic seconds; None: none waits."""
        return self._flying[0][1].sent_at if self._flying else None

    @property
    def oldest_taken_at(self) -> float | None:
        """When the oldest message without an answer was taken, in monotonic seconds; None: there is none."""
        oldest = self._flying[0][1] if self._flying else self.filling
        return oldest.started_at if oldest.runs else None

    def take_slowest(self) -> float | None:
        """Seconds of the slowest answer since the last call; None: there was none."""
        slowest, self._slowest_s = self._slowest_s, -1.0
        return slowest if slowest >= 0 else None

    def admits(self) -> bool:
        """Whether this lane takes the next run of messages that could go elsewhere."""
        if self.link is None or self.share == 0:
            return False
        self._turn = (self._turn + 1) % SHARE_ALL
        return self._turn < self.share

    def lets_in(self, asked: int, grade: int) -> bool:
        """Whether `asked` more messages of a grade may wait here."""
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
        append.add(destination.id_at(self.group), queue, AppendItem(destination, record, waiter, index, bound))
        self.waiting += 1
        self._ask()

    def yield_unsent(self) -> None:
        """Offer unsent messages that may go elsewhere to `rescue`; the rest stays."""
        old = self.filling
        if not old.runs or self.rescue is None:
            return
        self.rescue(old, self.group)
        self.filling = AppendRequest()
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
        """Offer sent messages that may go elsewhere to `rescue`.

        The broker may still store them, under the same ids.
        """
        if self.rescue is not None:
            for _, append in self._flying:
                self.rescue(append, self.group)

    def expire(self, now: float) -> None:
        """Update the limit; deadlines are left to the lane by the hot path only."""
        self.limit.look(self._flying[0][1].started_at if self._flying else now, now)

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            gevent.get_hub().loop.run_callback(self._send)

    def _send(self) -> None:
        self._asked = False
        if not self.filling.runs or self.link is None or len(self._flying) >= self.in_flight_max:
            return
        append, self.filling = self.filling, AppendRequest()
        append.sent_at = time.monotonic()
        self.append_number += 1
        self._request_id += 1
        self._flying.append((self._request_id, append))
        self.appends += 1
        self.messages += append.count
        gevent.spawn(self._write, self.link, append.encode(self._request_id, self.durability))

    def _write(self, link: gevent_socket.socket, frame: bytes) -> None:
        try:
            link.sendall(frame)
        except OSError:
            self._lost(link)

    def _read(self, link: gevent_socket.socket) -> None:
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
            append.answer(frame[layout.HEADER_SIZE :], self.on_unknown_id)
        else:
            append.answer_all(code)
        return self._ask()

    def _lost(self, link: gevent_socket.socket) -> None:
        if self.link is not link:
            return
        self.link = None
        link.close()
        flying, self._flying = self._flying, []
        for _, append in flying:
            self._give_up(append, layout.TIMEOUT)
        append, self.filling = self.filling, AppendRequest()
        self.waiting, self.limit.is_stalled = 0, False
        self.append_number += 1
        self._give_up(append, layout.UNAVAILABLE)
        if self.on_down is not None:
            self.on_down(self)

    def _give_up(self, append: AppendRequest, code: int) -> None:
        if self.rescue is not None:
            self.rescue(append, self.group)
        append.answer_all(code)
