"""READ: positions that callers keep themselves. Nothing is leased and no group moves; a read may wait for new records."""

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from common.timer_heap import TimerHeap
from engine.errors import CorruptionError, OffsetOutOfRangeError
from engine.link.layout import INVALID, NO_TOKEN, OFFSET_OUT_OF_RANGE, OK, PIECE, U32, UNAVAILABLE, UNKNOWN_TOPIC
from engine.server.errors import RequestError

MESSAGES_MAX = 65_536
BYTES_MAX = 15 << 20
BYTES_DEFAULT = 1 << 20
WAIT_MS_MAX = 30_000
COLD_WAIT_MS = 2_000
POSITIONS_MAX = 10_000
EARLIEST, END = -1, -2


class _Position:
    """One asked position and its report."""

    __slots__ = ("end_offset", "offset", "queue", "report", "topic_id")

    def __init__(self, asked: dict) -> None:
        self.queue, self.offset, self.end_offset = asked["queue"], asked.get("offset"), asked.get("end_offset")
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


class Reading:
    """One READ in work or waiting. Raises RequestError when the payload is none; `answer(reading)` is called once."""

    def __init__(self, payload: bytes, answer: Callable[["Reading"], None]) -> None:
        try:
            request = json.loads(payload)
            self.asked = [_checked(each) for each in request["positions"]]
            self.messages = _number(request, "max_messages", 32)
            self.bytes = _number(request, "max_bytes", BYTES_DEFAULT)
            self.wait_ms = _number(request, "wait_ms", 0)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise RequestError("READ: positions with topic and queue, numbers where numbers belong") from None
        if len(self.asked) > POSITIONS_MAX:
            raise RequestError(f"READ: at most {POSITIONS_MAX} positions")
        self.messages = max(0, min(self.messages, MESSAGES_MAX))
        self.bytes = min(self.bytes, BYTES_MAX) if self.bytes > 0 else BYTES_DEFAULT
        self.answer = answer
        self.positions: list[_Position] = []
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


class Reader:
    """Serves readings from the log and keeps those that wait."""

    def __init__(self, store) -> None:
        self._store = store
        self._waits = TimerHeap()
        self._by_queue: dict[tuple[int, int], OrderedDict[Reading, None]] = {}

    def start(self, reading: Reading, now_ms: int, *, may_wait: bool) -> bool:
        """Read what there is and answer; True when there is nothing yet and the reading waits instead."""
        reading.positions = [self._locate(asked) for asked in reading.asked]
        self._fill(reading)
        waits = [(position.topic_id, position.queue) for position in reading.positions if self._can_grow(position)]
        failed = any(position.report["code"] != OK for position in reading.positions)
        if not reading.piece_count and any(self._store.is_fetching(*queue) for queue in waits):
            # An empty answer would say that there is nothing.
            reading.wait_ms = max(reading.wait_ms, COLD_WAIT_MS)
        if reading.piece_count or failed or not waits or reading.wait_ms <= 0 or reading.messages <= 0 or not may_wait:
            reading.answer(reading)
            return False
        for queue in waits:
            self._by_queue.setdefault(queue, OrderedDict())[reading] = None
            self._store.watch(*queue)
        reading.tick = self._waits.schedule(now_ms + min(reading.wait_ms, WAIT_MS_MAX), reading)
        return True

    def cancel(self, reading: Reading) -> None:
        """Forget a waiting reading."""
        self._waits.cancel(reading.tick, reading)
        for position in reading.positions:
            waiting = self._by_queue.get((position.topic_id, position.queue))
            if waiting is not None:
                waiting.pop(reading, None)
                if not waiting:
                    del self._by_queue[position.topic_id, position.queue]

    def on_woken(self, woken: list[tuple[int, int]]) -> None:
        """These queues have new records."""
        if not self._by_queue:
            return  # mostly nobody reads by position, while every loop turn of a busy engine comes here
        for queue in woken:
            for reading in list(self._by_queue.get(queue, ())):
                self.cancel(reading)
                self._fill(reading)
                reading.answer(reading)

    def on_time(self, now_ms: int) -> bool:
        """Answer those whose time is over; True while others wait."""
        for reading in self._waits.pop_due(now_ms):
            self.cancel(reading)
            reading.answer(reading)
        return bool(self._by_queue)

    def _locate(self, asked: dict) -> _Position:
        position = _Position(asked)
        topic = self._store.topic(asked["topic"])
        if topic is None:
            position.fail(UNKNOWN_TOPIC, "the engine has no such topic")
            return position
        if not 0 <= position.queue < topic.queues:
            position.fail(INVALID, f"queue: 0..{topic.queues - 1}")
            return position
        position.topic_id = topic.id
        first, end = self._store.bounds(topic.id, position.queue)
        if position.offset is None and asked.get("at_time_ms") is not None:
            position.offset = self._at_time(topic.id, position.queue, asked["at_time_ms"], first, end)
        position.report.update(next_offset=position.offset, min_offset=first, end_offset=end)
        if position.offset is not None and not first <= position.offset <= end:
            position.fail(OFFSET_OUT_OF_RANGE, f"offset {position.offset} is outside {first}..{end}")
        return position

    def _at_time(self, topic_id: int, queue: int, at_ms: int, first: int, end: int) -> int:
        if at_ms == EARLIEST:
            return first
        return end if at_ms == END else self._store.offset_at_time(topic_id, queue, at_ms)

    def _can_grow(self, position: _Position) -> bool:
        wanted = position.offset is not None and position.report["code"] == OK
        return wanted and (position.end_offset is None or position.offset < position.end_offset)

    def _fill(self, reading: Reading) -> None:
        """Give each position its share of what is left, so that the first does not take everything."""
        left_messages, left_bytes = reading.messages, reading.bytes
        readable = [position for position in reading.positions if self._can_grow(position)]
        for index, position in enumerate(readable):
            if left_messages <= 0 or left_bytes <= 0:
                return
            shares = len(readable) - index
            messages, size = self._read(reading, position, -(-left_messages // shares), -(-left_bytes // shares))
            left_messages -= messages
            left_bytes -= size

    def _read(self, reading: Reading, position: _Position, messages: int, bytes_max: int) -> tuple[int, int]:
        first, end = self._store.bounds(position.topic_id, position.queue)
        position.report.update(min_offset=first, end_offset=end)
        stop = end if position.end_offset is None else min(end, position.end_offset)
        if position.offset >= stop:
            return 0, 0
        try:
            wanted = min(messages, stop - position.offset)
            pieces = self._store.read(position.topic_id, position.queue, position.offset, wanted, bytes_max)
        except CorruptionError as damage:
            position.fail(UNAVAILABLE, str(damage))
            position.report["next_offset"] = damage.next_offset
            return 0, 0
        except OffsetOutOfRangeError as gone:
            # Deleted while this reading waited for it.
            position.fail(OFFSET_OUT_OF_RANGE, str(gone))
            position.report.update(min_offset=gone.first_offset, end_offset=gone.end_offset)
            return 0, 0
        count = size = 0
        for at, records, stored_at_ms, data in pieces:
            reading.pieces.append(PIECE.pack(NO_TOKEN, at, 0, position.queue, records, 0, stored_at_ms, len(data), 0))
            reading.pieces.append(data)
            count += records
            size += len(data)
        reading.piece_count += len(pieces)
        position.offset += count  # type: ignore[operator]
        position.report["next_offset"] = position.offset
        return count, size
