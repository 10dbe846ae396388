"""Acknowledgement ranges: neighbouring messages of one lease with one verdict. In a PULL they follow the limits."""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engine.link.errors import PayloadError
from engine.link.integers import U32
from engine.link.receipt import queue_of_token

DONE, RETRY, REJECT, EXTEND = VERDICT_DONE, VERDICT_RETRY, VERDICT_REJECT, VERDICT_EXTEND = range(4)
RELEASE = VERDICT_RELEASE = 4
"""No client has seen the messages: they are ready at once, and their delivery is no attempt. Only proxies use it."""

DELAY_UNSET = -1

ACK = struct.Struct("<48sIIB3xiH")
"""Token ‖ number of the first message in its lease ‖ count ‖ verdict ‖ delay_ms ‖ size of the reason, which follows."""

ACK_SIZE = 66
"""Without the reason."""

ACK_COUNT_AT, ACK_VERDICT_AT, ACK_DELAY_AT, ACK_REASON_SIZE_AT = 52, 56, 60, 64
"""Positions in a range. A receipt, token and number, is its beginning."""


class AckRange(NamedTuple):
    """Neighbouring messages of one lease with one verdict. `delay_ms`: -1 is unset."""

    token: bytes
    first: int
    count: int  # type: ignore[assignment]
    verdict: int = DONE
    delay_ms: int = DELAY_UNSET
    reason: bytes = b""

    def encode(self) -> bytes:
        """Encode the range, its reason included."""
        token, first, count, verdict, delay_ms, reason = self
        return ACK.pack(token, first, count, verdict, delay_ms, len(reason)) + reason


class AckRanges:
    """The ranges of one pull in the link's encoding: a count, then the ranges.

    A proxy merges acknowledgements in this form and an engine reads this form, so nothing is decoded on the way. A
    source that is no engine iterates over the values.
    """

    __slots__ = ("encoded",)

    def __init__(self, encoded: bytes = bytes(4)) -> None:
        self.encoded = encoded

    @classmethod
    def of(cls, ranges: Iterable[AckRange]) -> "AckRanges":
        """Encode these ranges."""
        return cls.joined([each.encode() for each in ranges])

    @classmethod
    def joined(cls, ranges: list[bytes]) -> "AckRanges":
        """Put together ranges that are encoded already, as `split` gives them."""
        return cls(U32.pack(len(ranges)) + b"".join(ranges))

    def __len__(self) -> int:
        return U32.unpack_from(self.encoded)[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AckRanges) and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash(self.encoded)

    def __repr__(self) -> str:
        return f"AckRanges.of({list(self)})"

    def __iter__(self) -> Iterator[AckRange]:
        for data in self.split():
            token, first, count, verdict, delay_ms, _ = ACK.unpack_from(data)
            yield AckRange(token, first, count, verdict, delay_ms, data[ACK_SIZE:])

    def split(self) -> list[bytes]:
        """Each range by itself, still encoded. Raises PayloadError."""
        found, at = [], U32.size
        for _ in range(len(self)):
            if len(self.encoded) - at < ACK_SIZE:
                raise PayloadError("acknowledgement ranges: more counted than there are bytes")
            end = at + ACK_SIZE + int.from_bytes(self.encoded[at + ACK_REASON_SIZE_AT : at + ACK_SIZE], "little")
            found.append(self.encoded[at:end])
            at = end
        if at != len(self.encoded):
            raise PayloadError("acknowledgement ranges: they do not end where their bytes do")
        return found


NO_ACKS = AckRanges()


def queue_of_range(encoded: bytes) -> tuple[int, int]:
    """(topic hash, queue) that an encoded range belongs to."""
    return queue_of_token(encoded)
