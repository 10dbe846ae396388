"""A lane without its socket: messages on their way to one broker, and what becomes of them when its link ends.

With `lane.py` the reference of `_lane`: same answers, same bytes.
"""

import time
from collections.abc import Callable
from typing import Any

from common.limits import QueueLimit
from engine.client.append_request import AppendItem, AppendRequest, Waiter
from engine.client.destination import Destination
from engine.client.durability import LaneRow
from engine.link import layout
from engine.link.append import read_end

FRAME_BYTES_MAX = 24 << 20
SHARE_ALL = 16

SWITCH_S = 1.0
"""Time in which a master that hangs is replaced: with other brokers in the group, a stall begins to count after it."""


class LaneCore:
    """One connection to one broker, for the durability classes that it serves.

    A class below it has the connection, in `_open`, `_soon` and `_write`.

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
        self.on_busy: Callable[[], object] | None = None
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
        self.keeps = self.waits = self._is_due_again = False
        self._resending = self.end_position = 0
        self._linked_at = 0.0

    @property
    def idle(self) -> bool:
        return not self._flying and not self.filling.runs

    def rest(self, on_busy: Callable[[], object]) -> bool:
        """See `_lane.Lane.rest`."""
        self.on_busy = None if self._flying or self.filling.waiters else on_busy
        return self.on_busy is not None

    def use(self, fd: int, peer: str, end_position: int = 0) -> None:
        """See `_lane.Lane.use`."""
        self.link = self._open(fd)
        self.waits, self._linked_at = False, time.monotonic()
        self.limit.is_stalled = False  # the one that stalled is gone
        if end_position:
            self.end_position = end_position
            for _, append in self._flying:
                append.position = min(append.position, end_position)
        self._is_due_again = bool(self._flying)
        self._ask()

    def drop(self, reason: str) -> None:
        if self.link is not None:
            self._lost(self.link)

    @property
    def up(self) -> bool:
        return (self.link is not None or self.waits) and not self.refusing

    @property
    def oldest_sent_at(self) -> float | None:
        """When the append that has waited longest for its answer was sent, in monotonic seconds; None: none waits."""
        return self._flying[0][1].sent_at if self._flying and self.link is not None else None

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
        self._take(destination.id_at(self.group), AppendItem(destination, record, waiter, index, bound), queue, waiter)

    def _take(self, topic_id: int, item: AppendItem, queue: int, waiter: Waiter) -> None:
        append = self.filling
        if not append.waiters:
            append.started_at = time.monotonic()
            if self.on_busy is not None:
                on_busy, self.on_busy = self.on_busy, None
                on_busy()
        if not append.waiters or append.waiters[-1] is not waiter:
            append.waiters.append(waiter)
            waiter.waiting += 1
        append.add(topic_id, queue, item)
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
                    again = AppendItem(item.destination, item.record, item.waiter, item.index, item.bound)
                    # The destination may know the broker by a number that is void: see Brokers._greeted.
                    self._take(run.topic_id, again, run.queue, item.waiter)
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
        if not self.waits:
            oldest = max(self._flying[0][1].started_at, self._linked_at) if self._flying else now
            self.limit.look(oldest + SWITCH_S if self.keeps else oldest, now)

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._soon(self._send)

    def _send(self) -> None:
        self._asked = False
        if self.link is None:
            return
        if self._is_due_again:
            self._send_again()
        # An APPEND overtakes a RESEND at the broker, so it waits for its answer.
        if not self.filling.runs or len(self._flying) >= self.in_flight_max or self._resending:
            return
        append, self.filling = self.filling, AppendRequest()
        self.append_number += 1
        if append.has_expired and not append.drop_expired():
            self.waiting -= append.count
            append.answer_all(layout.TIMEOUT)
            return
        append.sent_at, append.position = time.monotonic(), self.end_position
        self._request_id += 1
        self._flying.append((self._request_id, append))
        self.appends += 1
        self.messages += append.count
        self._write(self.link, append.encode(self._request_id, self.durability))

    def _send_again(self) -> None:
        """See `_lane.Lane.send_again`; the calls of the reference have no deadlines here."""
        self._is_due_again = False
        flying, self._flying = self._flying, []
        frames = []
        for _, append in flying:
            if not append.leave_out_expired_runs():
                self.waiting -= append.count
                append.answer_all(layout.TIMEOUT)
                continue
            append.sent_at = time.monotonic()
            self._request_id += 1
            self._flying.append((self._request_id, append))
            frames.append(append.encode_again(self._request_id, self.durability))
        self._resending = len(self._flying)
        self._write(self.link, b"".join(frames))

    def _open(self, fd: int) -> Any:
        """The connection, with `close()`. Its frames come by `_answered`, its end by `_lost`."""
        raise NotImplementedError

    def _soon(self, call: Callable[[], None]) -> None:
        """Call at the end of this turn of the loop."""
        raise NotImplementedError

    def _write(self, link: Any, frames: bytes) -> None:
        """Send, without waiting and in order."""
        raise NotImplementedError

    def _answered(self, frame: bytes) -> None:
        _, _, _, code, request_id, _ = layout.HEADER.unpack_from(frame)
        if not self._flying or self._flying[0][0] != request_id:
            return self.drop("answers out of order")
        if code == layout.NOT_MASTER and self.keeps:
            return self.drop("the broker does not lead")
        _, append = self._flying.pop(0)
        self._resending = max(0, self._resending - 1)
        if append.started_at >= self._linked_at:  # else the time of the switch would count as the broker's
            self.limit.answered(append.started_at, time.monotonic(), self.waiting)
        self.waiting -= append.count
        self._slowest_s = max(self._slowest_s, time.monotonic() - append.sent_at)
        if code == layout.OK:
            if len(frame) >= layout.HEADER_SIZE + layout.APPEND_END.size:
                self.end_position = read_end(frame)
            append.answer(frame[layout.HEADER_SIZE :], self.on_unknown_id)
        else:
            append.answer_all(code)
        return self._ask()

    def _lost(self, link: Any) -> None:
        if self.link is not link:
            return
        self.link = None
        link.close()
        self._resending, self._is_due_again, self.waits = 0, False, self.keeps
        if not self.keeps:
            self.end_sent()
            self.refuse_unsent()
        if self.on_down is not None:
            self.on_down(self)

    def end_sent(self) -> None:
        """Answer TIMEOUT for what was sent, or move it."""
        flying, self._flying = self._flying, []
        for _, append in flying:
            self.waiting -= append.count
            self._give_up(append, layout.TIMEOUT)

    def refuse_unsent(self) -> None:
        """Answer UNAVAILABLE for what was not sent, or move it, and take nothing without a link."""
        append, self.filling = self.filling, AppendRequest()
        self.waits = self.limit.is_stalled = False
        self.append_number += 1
        self.waiting -= append.count
        self._give_up(append, layout.UNAVAILABLE)

    def _give_up(self, append: AppendRequest, code: int) -> None:
        if self.rescue is not None:
            self.rescue(append, self.group)
        append.answer_all(code)
