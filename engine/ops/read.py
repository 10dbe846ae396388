"""READ: records from positions that callers keep.

It leases nothing and moves no group; a read may wait for new records.
"""

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from common.timer_heap import TimerHeap
from engine.delivery.topic_uses import TopicUses
from engine.env.native import NodeClock
from engine.errors import CorruptionError, OffsetOutOfRangeError, UnreadableError
from engine.link.codes import AT_SLAVE, INVALID, OFFSET_OUT_OF_RANGE, OK, UNAVAILABLE, UNKNOWN_TOPIC
from engine.link.integers import U32
from engine.link.operations import READ
from engine.link.pieces import PIECE
from engine.link.receipt import NO_TOKEN
from engine.log import Log
from engine.ops.checks import shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer
from engine.ops.waiting import WaitingRequests

MESSAGES_MAX = 65_536
BYTES_MAX = 15 << 20
BYTES_DEFAULT = 1 << 20
WAIT_MS_MAX = 30_000
COLD_WAIT_MS = 2_000
POSITIONS_MAX = 10_000
EARLIEST, END = -1, -2


class ServedPosition:
    """One position of a READ, and its report."""

    __slots__ = ("end_offset", "offset", "queue", "report", "topic_id")

    def __init__(self, asked: dict) -> None:
        self.queue: int = asked["queue"]
        self.offset: int | None = asked.get("offset")
        self.end_offset: int | None = asked.get("end_offset")
        self.topic_id = 0
        self.report: dict[str, Any] = {
            "code": OK,
            "next_offset": None,
            "min_offset": None,
            "end_offset": None,
            "error": None,
        }

    def fail(self, code: int, sentence: str) -> None:
        self.report.update(code=code, error=sentence)
        self.offset = None


class PositionRead:
    """One READ, served or waiting. Raises RequestError when the payload is none; `answer(read)` is called once."""

    def __init__(self, payload: bytes, answer: Callable[["PositionRead"], None]) -> None:
        try:
            request = json.loads(payload)
            self.asked = [_checked(each) for each in request["positions"]]
            self.messages = _number(request, "max_messages", 32)
            self.bytes = _number(request, "max_bytes", BYTES_DEFAULT)
            self.wait_ms = _number(request, "wait_ms", 0)
            self.slaves = request.get("slaves") is True
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise RequestError("READ: send positions with topic and queue, and whole numbers for all limits") from None
        if len(self.asked) > POSITIONS_MAX:
            raise RequestError(f"READ: {len(self.asked)} positions: send at most {POSITIONS_MAX}")
        self.messages = max(0, min(self.messages, MESSAGES_MAX))
        self.bytes = min(self.bytes, BYTES_MAX) if self.bytes > 0 else BYTES_DEFAULT
        self.answer = answer
        self.positions: list[ServedPosition] = []
        self.pieces: list[bytes] = []
        self.piece_count = 0
        self.tick = 0

    def answer_parts(self) -> list[bytes]:
        """The answer's payload."""
        reports = json.dumps({"reports": [position.report for position in self.positions]}).encode()
        return [U32.pack(len(reports)), reports, U32.pack(self.piece_count), *self.pieces]


def _checked(asked: dict) -> dict:
    for name in ("queue", "offset", "end_offset", "at_time_ms"):
        value = asked.get(name)
        if (value is None and name == "queue") or (value is not None and type(value) is not int):
            raise ValueError(name)
    if not isinstance(asked["topic"], str):
        raise ValueError("topic")
    return asked


def _number(request: dict, name: str, default: int) -> int:
    value = request.get(name)
    if value is None:
        return default
    if type(value) is not int:
        raise ValueError(name)
    return value


class PositionReads:
    """Serves READ from the log and keeps the reads that wait.

    Args:
        uses: notes that the topics are in use.
        far_bytes: distance from the end of the log from which on slaves serve reads; 0: they serve none.

    Attributes:
        has_slave: whether a slave has all that can be read here; None: there are no slaves.
        redirected: reads that were left to slaves.
    """

    has_slave: Callable[[], bool] | None = None

    def __init__(
        self, store: Log, clock: NodeClock, waiting: WaitingRequests, uses: TopicUses, far_bytes: int = 0
    ) -> None:
        self._far_bytes, self.redirected = far_bytes, 0
        self._store, self._clock, self._waiting, self._uses = store, clock, waiting, uses
        self._waits = TimerHeap()
        self._by_queue: dict[tuple[int, int], OrderedDict[PositionRead, None]] = {}

    @property
    def waiting_queues(self) -> int:
        """Queues whose new records some read waits for."""
        return len(self._by_queue)

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Serve the read, now or when records arrive or its time is over."""

        def answer(read: PositionRead) -> None:
            self._waiting.remove(peer, request_id)
            peer.send_frame(READ, request_id, OK, read.answer_parts())

        read = PositionRead(payload, answer)
        if read.slaves and self._far_bytes and self.has_slave is not None and self.has_slave() and self._is_far(read):
            self.redirected += 1
            raise RequestError("far behind the end of the log: read it from a slave", AT_SLAVE)
        read.bytes = min(read.bytes, peer.peer_state.window.share())
        if self.start(read, self._clock.monotonic_ms(), may_wait=not self._waiting.stopping):
            self._waiting.add(peer, request_id, lambda: self.cancel(read), lambda: answer(read))
            self._waiting.on_wait()

    def start(self, read: PositionRead, now_ms: int, *, may_wait: bool) -> bool:
        """Read the available records and answer; True when there are none yet and the read waits."""
        read.positions = [self._locate(asked) for asked in read.asked]
        self._fill(read)
        waits = [(position.topic_id, position.queue) for position in read.positions if self._can_grow(position)]
        failed = any(position.report["code"] != OK for position in read.positions)
        if not read.piece_count and any(self._store.is_fetching(*queue) for queue in waits):
            # The records are being fetched; an empty answer would mean that there are none.
            read.wait_ms = max(read.wait_ms, COLD_WAIT_MS)
        if read.piece_count or failed or not waits or read.wait_ms <= 0 or read.messages <= 0 or not may_wait:
            read.answer(read)
            return False
        for queue in waits:
            self._by_queue.setdefault(queue, OrderedDict())[read] = None
            self._store.watch(*queue)
        read.tick = self._waits.schedule(now_ms + min(read.wait_ms, WAIT_MS_MAX), read)
        return True

    def cancel(self, read: PositionRead) -> None:
        """Forget a waiting read."""
        self._waits.cancel(read.tick, read)
        for position in read.positions:
            waiting = self._by_queue.get((position.topic_id, position.queue))
            if waiting is not None:
                waiting.pop(read, None)
                if not waiting:
                    del self._by_queue[position.topic_id, position.queue]

    def on_woken(self, woken: list[tuple[int, int]]) -> None:
        """Serve the reads that wait for these queues, which have new records."""
        if not self._by_queue:
            return  # mostly no read waits, and every loop turn of a busy engine comes here
        for queue in woken:
            for read in list(self._by_queue.get(queue, ())):
                self.cancel(read)
                self._fill(read)
                read.answer(read)

    def on_time(self, now_ms: int) -> None:
        """Answer reads whose time is over."""
        for read in self._waits.pop_due(now_ms):
            self.cancel(read)
            read.answer(read)

    def next_at_ms(self, now_ms: int) -> int | None:
        """The latest time of the next on_time() and of a look at what can be read; None: no read waits.

        Costs a look-up per queue that is waited for.
        """
        if any(self._store.is_fetching(*queue) for queue in self._by_queue):
            return now_ms  # a disk that refused to read is asked again after a time, and nothing else tells
        return self._waits.next_at_ms()

    def _locate(self, asked: dict) -> ServedPosition:
        position = ServedPosition(asked)
        topic = self._store.topic(asked["topic"])
        if topic is None:
            position.fail(UNKNOWN_TOPIC, f"topic {shown(asked['topic'])}: the engine has no such topic")
            return position
        if not 0 <= position.queue < topic.queues:
            position.fail(INVALID, f"queue {position.queue}: use 0..{topic.queues - 1}")
            return position
        self._uses.note((topic.id,))
        position.topic_id = topic.id
        first, end = self._store.bounds(topic.id, position.queue)
        if position.offset is None and asked.get("at_time_ms") is not None:
            position.offset = self._at_time(topic.id, position.queue, asked["at_time_ms"], first, end)
        position.report.update(next_offset=position.offset, min_offset=first, end_offset=end)
        if position.offset is not None and not first <= position.offset <= end:
            position.fail(OFFSET_OUT_OF_RANGE, f"offset {position.offset} is outside {first}..{end}")
        return position

    def _is_far(self, read: PositionRead) -> bool:
        """Whether some position is an offset in a segment that is far behind the end."""
        for asked in read.asked:
            offset, topic = asked.get("offset"), self._store.topic(asked["topic"])
            if offset is None or offset < 0 or topic is None or not 0 <= asked["queue"] < topic.queues:
                continue
            if self._store.distance(topic.id, asked["queue"], offset) >= self._far_bytes:
                self._uses.note((topic.id,))
                return True
        return False

    def _at_time(self, topic_id: int, queue: int, at_ms: int, first: int, end: int) -> int:
        if at_ms == EARLIEST:
            return first
        return end if at_ms == END else self._store.offset_at_time(topic_id, queue, at_ms)

    def _can_grow(self, position: ServedPosition) -> bool:
        if position.offset is None or position.report["code"] != OK:
            return False
        return position.end_offset is None or position.offset < position.end_offset

    def _fill(self, read: PositionRead) -> None:
        """Give each position an equal share of the remaining bytes, so that the first cannot take all."""
        left_messages, left_bytes = read.messages, read.bytes
        readable = [position for position in read.positions if self._can_grow(position)]
        for index, position in enumerate(readable):
            if left_messages <= 0 or left_bytes <= 0:
                return
            shares = len(readable) - index
            messages, size = self._read(read, position, -(-left_messages // shares), -(-left_bytes // shares))
            left_messages -= messages
            left_bytes -= size

    def _read(self, read: PositionRead, position: ServedPosition, messages: int, bytes_max: int) -> tuple[int, int]:
        first, end = self._store.bounds(position.topic_id, position.queue)
        position.report.update(min_offset=first, end_offset=end)
        stop = end if position.end_offset is None else min(end, position.end_offset)
        offset = position.offset
        assert offset is not None  # or it could not grow
        if offset >= stop:
            return 0, 0
        try:
            wanted = min(messages, stop - offset)
            pieces = self._store.read(position.topic_id, position.queue, offset, wanted, bytes_max)
        except CorruptionError as damage:
            position.fail(UNAVAILABLE, str(damage))
            position.report["next_offset"] = damage.next_offset
            return 0, 0
        except UnreadableError as refused:
            position.fail(UNAVAILABLE, str(refused))
            return 0, 0
        except OffsetOutOfRangeError as gone:
            # Retention deleted the records while the read waited.
            position.fail(OFFSET_OUT_OF_RANGE, str(gone))
            position.report.update(min_offset=gone.first_offset, end_offset=gone.end_offset)
            return 0, 0
        count = size = 0
        for at, records, stored_at_ms, data in pieces:
            read.pieces.append(PIECE.pack(NO_TOKEN, at, 0, position.queue, records, 0, stored_at_ms, len(data), 0))
            read.pieces.append(data)
            count += records
            size += len(data)
        read.piece_count += len(pieces)
        position.offset = position.report["next_offset"] = offset + count
        return count, size
