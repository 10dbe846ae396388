"""One append request: its messages, as runs of queues, and the calls that wait.

The reference of `_append_request`.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from engine.client.destination import Destination
from engine.link import layout
from engine.link.append import encode_resend, read_results
from engine.link.batch import BATCH_HEADER, BATCH_MAGIC

PADDING_MAX = 8  # after a batch

Result = tuple[int, int, int]
"""(code, queue, offset) of one message."""
NO_RESULT = (layout.TIMEOUT, 0, -1)


class Waiter:
    """A call that waits for the results of its messages.

    Attributes:
        waiting: appends that have not reported theirs.
        expired: it waits no longer. What was not sent of it will not be.
    """

    def __init__(self, count: int, callback: Callable[[list[Result]], object]) -> None:
        self.results: list[Result | None] = [None] * count
        self.waiting, self.expired = 0, False
        self.callback = callback

    def withdraw(self) -> list[Result | None]:
        """See `_lanes.CallbackWaiter`."""
        self.expired = True
        return self.results

    def done(self) -> None:
        if not self.expired:
            self.callback([NO_RESULT if each is None else each for each in self.results])


class AppendItem:
    """One message of an append.

    Attributes:
        waiter: None: the message was moved to another append.
        id_window_ms: not 0: its id is to be checked.
        alone: it is a batch of its own.
    """

    __slots__ = ("alone", "bound", "destination", "id_window_ms", "index", "record", "waiter")

    def __init__(self, destination: Destination, record: bytes, waiter: Waiter | None, index: int, bound: bool) -> None:
        self.destination, self.record, self.waiter, self.index, self.bound = destination, record, waiter, index, bound
        self.id_window_ms = 0 if record[4] & layout.HAS_ID else destination.id_window_ms
        self.alone = self.id_window_ms > 0 or bool(record[4] & layout.HAS_TRAILER)


class AppendRun(NamedTuple):
    """Messages that become one batch."""

    topic_id: int
    queue: int
    id_window_ms: int
    alone: bool
    items: list[AppendItem]


class AppendRequest:
    """One append: runs in the order in which they began.

    `_open` holds the last run of each queue by (topic id, queue).
    """

    def __init__(self) -> None:
        self.runs: list[AppendRun] = []
        self.waiters: list[Waiter] = []
        self.count, self.started_at = 0, time.monotonic()
        self._open: dict[tuple[int, int], AppendRun] = {}
        self.size = layout.HEADER_SIZE + layout.APPEND_HEAD.size
        self.sent_at = 0.0
        self.position = 0
        """Of the log: nothing of this append can be stored below it."""

    def add(self, topic_id: int, queue: int, item: AppendItem) -> None:
        """Add to the queue's last run.

        A request, or a message whose id is checked, is a run of its own; later messages begin another run.
        """
        run = self._open.get((topic_id, queue))
        if run is None or item.alone or run.alone:
            run = self._open[topic_id, queue] = AppendRun(topic_id, queue, item.id_window_ms, item.alone, [])
            self.runs.append(run)
        run.items.append(item)
        self.count += 1
        self.size += len(item.record) + layout.BATCH_HEADER_SIZE + PADDING_MAX

    def encode(self, request_id: int, durability: int) -> bytes:
        return layout.frame(layout.APPEND, request_id, self._payload(durability))

    def encode_again(self, request_id: int, durability: int) -> bytes:
        """The same append as a RESEND."""
        return layout.frame(layout.RESEND, request_id, encode_resend(self.position, self._payload(durability)))

    def _payload(self, durability: int) -> bytes:
        out = bytearray(layout.APPEND_HEAD.pack(durability, len(self.runs)))
        for topic_id, queue, window_ms, _, items in self.runs:
            records = b"".join(item.record for item in items)
            size = layout.BATCH_HEADER_SIZE + len(records)
            flags = layout.CHECK_IDS if window_ms else 0
            out += BATCH_HEADER.pack(0, size, BATCH_MAGIC, 0, flags, 0, topic_id, queue, len(items), window_ms, 0, 0)
            out += records + bytes(-size % 8)
        return bytes(out)

    def answer(self, payload: bytes, on_unknown_id: Callable[[int], object]) -> None:
        """Report the broker's results, one per batch; the log's end follows them.

        Args:
            on_unknown_id: called with each topic id that the broker does not know. The configuration has the topic, so
                its messages are UNAVAILABLE, not UNKNOWN_TOPIC: a retry finds the id that was looked up again.
        """
        if len(payload) != len(self.runs) * layout.APPEND_RESULT.size + layout.APPEND_END.size:
            return self.answer_all(layout.TIMEOUT)
        for run, (code, first_queue, offset) in zip(self.runs, read_results(payload), strict=True):
            queue = first_queue if code in (layout.DUPLICATE, layout.CLAIMED) else run.queue
            if code == layout.UNKNOWN_TOPIC:
                on_unknown_id(run.topic_id)
                code = layout.UNAVAILABLE
            for step, item in enumerate(run.items):
                if item.waiter is not None:
                    item.waiter.results[item.index] = (code, queue, offset + step)
        return self._finish()

    def answer_all(self, code: int) -> None:
        """Report one code for every message."""
        for run in self.runs:
            for item in run.items:
                if item.waiter is not None:
                    item.waiter.results[item.index] = (code, run.queue, -1)
        self._finish()

    @property
    def has_expired(self) -> bool:
        """Whether a call of it waits no longer."""
        return any(waiter.expired for waiter in self.waiters)

    def drop_expired(self) -> bool:
        """Drop the messages that no call waits for, before it is sent for the first time; returns whether any is left."""
        for run in self.runs:
            run.items[:] = [item for item in run.items if item.waiter is None or not item.waiter.expired]
        self.runs = [run for run in self.runs if run.items]
        return bool(self.runs)

    def leave_out_expired_runs(self) -> bool:
        """Leave out the runs that no call waits for, before it is sent again; returns whether any is left.

        Of others every message stays: the broker finds a batch by exactly the bytes that were sent.
        """
        self.runs = [run for run in self.runs if any(map(is_awaited, run.items))]
        return bool(self.runs)

    def forget_moved(self) -> None:
        """Release the waiters whose messages were all moved to other appends."""
        still = {id(item.waiter) for run in self.runs for item in run.items if item.waiter is not None}
        for waiter in [waiter for waiter in self.waiters if id(waiter) not in still]:
            waiter.waiting -= 1
            self.waiters.remove(waiter)

    def _finish(self) -> None:
        for waiter in self.waiters:
            waiter.waiting -= 1
            if waiter.waiting == 0:
                waiter.done()


def is_awaited(item: AppendItem) -> bool:
    """Whether a call waits for this append to tell the item's result."""
    return item.waiter is not None and not item.waiter.expired
