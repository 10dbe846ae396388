"""PULL: acknowledges, then leases messages of a group or waits for some.

Request: group, topics, limits, acknowledgement ranges. The group may be followed by "@" and the application that
pulls. Answer: one code per range, then the pieces. `PullQuestion` and `PullAnswer` are the asking side's values;
`PullRequest` is what an engine decodes. Counts are checked against the bytes that are left before anything is made.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from common.names import NAME_RULE, is_name, is_stored_name
from engine.link.acknowledgement import REJECT, RELEASE, AckRange, AckRanges
from engine.link.codes import OK
from engine.link.errors import PayloadError
from engine.link.integers import U16, U32
from engine.link.native import leases_of, split_request
from engine.link.pieces import AnswerPiece, encode_pieces, read_pieces
from engine.link.receipt import NO_TOKEN

EARLIEST, LATEST, AT_TIME = 0, 1, 2
"""Start of a group in a queue that is new to it. The time of AT_TIME is in the group's definition."""
_STARTS = {"earliest": EARLIEST, "latest": LATEST, "time": AT_TIME}

_LIMITS = struct.Struct("<iiiiB3x")  # max_messages ‖ max_bytes ‖ wait_ms ‖ invisible_ms ‖ start

MALFORMED = b"the stored bytes are no whole Message"
"""Reason of the dead letters made by `rejections`."""

_NO_CODES = U32.pack(0)


def start_of(name: str, at_ms: int) -> int:
    """The start that a group's definition means. A `latest` that says when it was set is that time."""
    return AT_TIME if name == "latest" and at_ms else _STARTS[name]


class PullScope:
    """A group and the topics of its pulls, encoded once for all of them.

    Args:
        application: who pulls; empty: not known.

    Attributes:
        head: the beginning of each request. Equal topics in equal order give equal bytes, by which the engine knows
            them.
    """

    __slots__ = ("group", "head")

    def __init__(self, group: bytes, queues: Mapping[str, int], application: str = "") -> None:
        named = group + b"@" + application.encode() if application else group
        out = [U16.pack(len(named)), named, U16.pack(len(queues))]
        for name, count in queues.items():
            encoded = name.encode()
            out += (U16.pack(len(encoded)), encoded, U32.pack(count))
        self.group = group
        self.head = b"".join(out)

    @property
    def application(self) -> str:
        """Who pulls; empty: not known."""
        named = self.head[U16.size : U16.size + U16.unpack_from(self.head)[0]]
        return named[len(self.group) + 1 :].decode()

    def queues(self) -> list[tuple[bytes, int]]:
        """Decode the topics: (name, queues)."""
        head, count_at = self.head, U16.size + U16.unpack_from(self.head)[0]
        found, at = [], count_at + U16.size
        for _ in range(U16.unpack_from(head, count_at)[0]):
            end = at + 2 + U16.unpack_from(head, at)[0]
            found.append((head[at + 2 : end], U32.unpack_from(head, end)[0]))
            at = end + 4
        return found


class PullQuestion(NamedTuple):
    """One PULL. 0 for bytes and invisible time takes the engine's default."""

    scope: PullScope
    max_messages: int
    max_bytes: int
    wait_ms: int
    invisible_ms: int
    start: int
    acks: AckRanges

    def encode(self) -> bytes:
        """Encode the request."""
        scope, max_messages, max_bytes, wait_ms, invisible_ms, start, acks = self
        limits = _LIMITS.pack(max_messages, max_bytes, wait_ms, invisible_ms, start)
        return b"".join((scope.head, limits, acks.encoded))


def acknowledging(scope: PullScope, acks: AckRanges) -> PullQuestion:
    """A pull that only acknowledges."""
    return PullQuestion(scope, 0, 1, 0, 1000, EARLIEST, acks)


class PullAnswer:
    """The answer of a PULL in the link's encoding; codes and pieces are decoded on demand.

    Attributes:
        payload, pieces_at: where the count of the pieces is.
        code: OK; of an empty answer also AT_BOUND and NO_ROOM, which say why it is empty.
    """

    __slots__ = ("code", "payload", "pieces_at")

    CODES_AT = 4

    def __init__(self, payload: bytes, code: int = OK) -> None:
        self.payload, self.code = payload, code
        self.pieces_at = 4 + 2 * int.from_bytes(payload[:4], "little")

    @classmethod
    def of(cls, codes: Sequence[int], pieces: Iterable[AnswerPiece]) -> "PullAnswer":
        """Make an answer of values."""
        return cls(encode_codes(codes) + encode_pieces(pieces))

    def codes(self) -> list[int]:
        """Decode the codes of the acknowledgement ranges, in the order of the question. Raises PayloadError."""
        if not 4 <= self.pieces_at <= len(self.payload):
            raise PayloadError("PULL answer: more codes than bytes")
        return list(struct.unpack_from(f"<{(self.pieces_at - 4) // 2}H", self.payload, 4))

    def pieces(self) -> Iterator[AnswerPiece]:
        """Decode the pieces one by one. Raises PayloadError."""
        return read_pieces(self.payload, self.pieces_at)

    def with_pieces(self, payload: bytes, pieces_at: int) -> "PullAnswer":
        """These codes with the pieces of another answer."""
        return PullAnswer(self.payload[: self.pieces_at] + payload[pieces_at:])

    def give_back(self, skip: int = 0) -> tuple[AckRanges, int]:
        """Ranges that release every leased record but the first `skip`, and the number of the records.

        For what no client has seen: it is ready at once, and its delivery is no attempt. Raises PayloadError.
        """
        encoded, count = leases_of(self.payload, self.pieces_at, skip, RELEASE)
        return AckRanges(encoded), count


def rejections(answer: PullAnswer, malformed: list[tuple[int, int]]) -> list[AckRange]:
    """Ranges that reject the leased ones among these records; each is (number of the piece, index in it)."""
    indexes: dict[int, list[int]] = {}
    for number, index in malformed:
        indexes.setdefault(number, []).append(index)
    return [
        AckRange(piece.token, piece.first_delta + index, 1, REJECT, reason=MALFORMED)
        for number, piece in enumerate(answer.pieces())
        if piece.token != NO_TOKEN
        for index in indexes.get(number, ())
    ]


NOTHING = PullAnswer(_NO_CODES + _NO_CODES)
"""No codes, no pieces."""


@dataclass(slots=True)
class PullRequest:
    """A decoded PULL. `topics_key` is the topics as they came, by which their resolved form is remembered."""

    group: str
    topics: Sequence[tuple[str, int]]
    topics_key: bytes
    max_messages: int
    max_bytes: int
    wait_ms: int
    invisible_ms: int
    start: int
    acks: list[AckRange]
    application: str = ""


def encode_codes(codes: Sequence[int]) -> bytes:
    """The beginning of an answer: a count, then the codes."""
    return struct.pack(f"<I{len(codes)}H", len(codes), *codes)


def encode_answer(codes: Sequence[int], piece_count: int, pieces: Sequence[bytes]) -> list[bytes]:
    """An answer's payload in parts, so that records are copied once only.

    Args:
        pieces: headers and records in turn, as engine.link.pieces lays them out.
    """
    count = len(codes)
    head = _ANSWER_HEADS[count] if count < len(_ANSWER_HEADS) else _answer_head(count)
    return [head.pack(count, *codes, piece_count), *pieces]


def _answer_head(codes: int) -> struct.Struct:
    return struct.Struct(f"<I{codes}HI")


_ANSWER_HEADS = [_answer_head(codes) for codes in range(32)]  # the usual ones, ready made


def decode_request(payload: bytes) -> PullRequest:
    """Decode a request. Raises PayloadError with one sentence."""
    head, max_messages, max_bytes, wait_ms, invisible_ms, start, acks = split_request(payload)
    group, application, topics, key = _scope(head)
    return PullRequest(group, topics, key, max_messages, max_bytes, wait_ms, invisible_ms, start, acks, application)


@lru_cache(maxsize=4096)
def _scope(head: bytes) -> tuple[str, str, tuple[tuple[str, int], ...], bytes]:
    """(group, application, topics, topics as they came) of a request's beginning."""
    at = 4 + U16.unpack_from(head)[0]
    try:
        group, separator, application = head[2 : at - 2].decode().partition("@")
        _check_name(group, "group")
        if separator:
            _check_name(application, "application")
        return group, application, _topics(head[at:]), head[at:]
    except UnicodeDecodeError as error:
        raise PayloadError(f"PULL: the payload is damaged: {error}") from error


def _topics(raw: bytes) -> tuple[tuple[str, int], ...]:
    topics, at = [], 0
    while at < len(raw):
        end = at + 2 + U16.unpack_from(raw, at)[0]
        name = raw[at + 2 : end].decode()
        if not is_stored_name(name):
            raise PayloadError(f"topic: {NAME_RULE}")
        topics.append((name, U32.unpack_from(raw, end)[0]))
        at = end + 4
    return tuple(topics)


def _check_name(name: str, field: str) -> None:
    if not is_name(name):
        raise PayloadError(f"{field}: {NAME_RULE}")


def encode_pull(
    group: str, topics: Iterable[tuple[str, int]] = (), *, max_messages: int = 32, max_bytes: int = 0,
    wait_ms: int = 0, invisible_ms: int = 0, start: int = EARLIEST, acks: Iterable[AckRange] = (),
) -> bytes:  # fmt: skip
    """Encode a request whose parts are used once, for tools and tests."""
    scope, ranges = PullScope(group.encode(), dict(topics)), AckRanges.of(acks)
    return PullQuestion(scope, max_messages, max_bytes, wait_ms, invisible_ms, start, ranges).encode()


def decode_answer(payload: bytes) -> tuple[list[int], list[AnswerPiece]]:
    """(codes of the acknowledgement ranges, pieces) of an answer. Raises PayloadError."""
    answer = PullAnswer(payload)
    return answer.codes(), list(answer.pieces())
