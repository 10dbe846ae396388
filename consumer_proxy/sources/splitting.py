"""The bytes of one request taken apart by broker group, and those of their answers put together again."""

import json
import struct
from typing import Any, NamedTuple

from consumer_proxy.pull.layout import PIECE, RANGE

_U16, _U32 = struct.Struct("<H"), struct.Struct("<I")
_LIMITS = struct.Struct("<iiiiB3x")  # max_messages ‖ max_bytes ‖ wait_ms ‖ invisible_ms ‖ start
_PLACE = struct.Struct("<2xHIQ")  # of a token: queue ‖ count ‖ topic hash
_REASON_AT = RANGE.size - 2
_PIECE_COUNT_AT, _PIECE_SIZE_AT = 64, 80


class Pull(NamedTuple):
    """A PULL request. `ranges` are those of its acknowledgements, as they came; `places` say where each belongs."""

    group: bytes
    topics: bytes  # encoded, with their count in front
    max_messages: int
    max_bytes: int
    wait_ms: int
    invisible_ms: int
    start: int
    ranges: list[bytes]
    places: list[tuple[int, int]]  # topic hash, queue


def read_pull(request: bytes) -> Pull:
    """Take apart what link_bytes.encode_pull made."""
    (size,) = _U16.unpack_from(request)
    topics_at = 2 + size
    at = _topics_end(request, topics_at)
    max_messages, max_bytes, wait_ms, invisible_ms, start = _LIMITS.unpack_from(request, at)
    ranges_at = at + _LIMITS.size
    ranges, places = [], []
    at = ranges_at + _U32.size
    for _ in range(_U32.unpack_from(request, ranges_at)[0]):
        end = at + RANGE.size + _U16.unpack_from(request, at + _REASON_AT)[0]
        queue, _, topic = _PLACE.unpack_from(request, at)
        ranges.append(request[at:end])
        places.append((topic, queue))
        at = end
    topics = request[topics_at : ranges_at - _LIMITS.size]
    return Pull(request[2:topics_at], topics, max_messages, max_bytes, wait_ms, invisible_ms, start, ranges, places)


def read_topics(topics: bytes) -> list[tuple[bytes, int]]:
    """(name, queues) of encoded topics."""
    found, at = [], _U16.size
    for _ in range(_U16.unpack_from(topics)[0]):
        (size,) = _U16.unpack_from(topics, at)
        name_at, at = at + 2, at + 2 + size
        found.append((topics[name_at:at], _U32.unpack_from(topics, at)[0]))
        at += 4
    return found


def _topics_end(request: bytes, at: int) -> int:
    (count,) = _U16.unpack_from(request, at)
    at += 2
    for _ in range(count):
        at += 2 + _U16.unpack_from(request, at)[0] + 4
    return at


def join_ranges(ranges: list[bytes]) -> bytes:
    return _U32.pack(len(ranges)) + b"".join(ranges)


def read_codes(payload: bytes) -> tuple[list[int], int]:
    """The codes of a PULL answer and where its pieces' count is."""
    (count,) = _U32.unpack_from(payload)
    return list(struct.unpack_from(f"<{count}H", payload, 4)), 4 + 2 * count


def join_codes(codes: list[int]) -> bytes:
    return struct.pack(f"<I{len(codes)}H", len(codes), *codes)


class Pieces:
    """Pieces of several answers, in the order in which these came.

    Attributes:
        count: of the pieces. records: in them.
    """

    def __init__(self) -> None:
        self.count = self.records = 0
        self._parts: list[bytes] = []

    def add(self, payload: bytes, at: int) -> int:
        """Take the pieces whose count is at `at`; returns how many records they hold. Raises ValueError."""
        (count,) = _U32.unpack_from(payload, at)
        before = self.records
        start = at = at + _U32.size
        for _ in range(count):
            if len(payload) - at < PIECE.size:
                raise ValueError("a piece runs past the answer")
            self.records += _U32.unpack_from(payload, at + _PIECE_COUNT_AT)[0]
            at += PIECE.size + _U32.unpack_from(payload, at + _PIECE_SIZE_AT)[0]
        if at != len(payload):
            raise ValueError("the pieces do not fill the answer")
        self.count += count
        self._parts.append(payload[start:])
        return self.records - before

    def joined(self) -> bytes:
        return _U32.pack(self.count) + b"".join(self._parts)


def read_reports(payload: bytes) -> tuple[list[dict[str, Any]], int]:
    """The reports of a READ answer and where its pieces' count is."""
    (size,) = _U32.unpack_from(payload)
    return json.loads(payload[4 : 4 + size])["reports"], 4 + size


def join_reports(reports: list[Any]) -> bytes:
    text = json.dumps({"reports": reports}).encode()
    return _U32.pack(len(text)) + text


def shares(total: int, count: int, first: int) -> list[int]:
    """`total` dealt out to `count`, the odd ones from number `first` on."""
    each, odd = divmod(total, count)
    return [each + ((number - first) % count < odd) for number in range(count)]
