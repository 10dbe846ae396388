"""From the acks of a pull to the ack ranges of the link: the reference that _acks.pyx equals byte for byte."""

import struct
from dataclasses import dataclass

from consumer_proxy.layout import (
    DELAY_UNSET,
    DONE,
    EXTEND,
    EXTEND_MS_MAX,
    LOCAL,
    RANGE,
    REASON_BYTES_MAX,
    RECEIPT_SIZE,
    REJECT,
    RETRY,
    RUN,
    TOKEN_SIZE,
    TOKEN_VERSION,
    DeliverError,
)
from consumer_proxy.skip_pure import I32, STOP, STRING, fields

INVALID, STALE_RECEIPT = 100, 106


@dataclass(frozen=True)
class Ack:
    receipt: bytes = b""
    verdict: int = DONE
    delay_ms: int = DELAY_UNSET
    delay_set: bool = False
    reason: bytes = b""


def plan_acks(frame: bytes, at: int, count: int) -> tuple[bytes, bytes, int]:
    """Ack ranges for the engine, and what will answer each ack.

    Neighbours that acknowledge consecutive messages of one lease with one verdict, delay and reason share a range. A receipt that
    cannot be ours is answered here, as is a verdict or delay that the contract does not have.

    Args:
        frame: the walked call. at: where the first element of its list of acks starts. count: of that list.
    Returns:
        (ranges as in the PULL request, with their u32 count in front; runs of layout.RUN; the place behind the last ack)
    Raises:
        DeliverError: not well formed; a walked frame never is.
    """
    ranges: list[list] = []  # token, first, count, verdict, delay_ms, reason
    runs: list[list[int]] = []
    if at < 0 or at > len(frame) or count < 0:
        raise DeliverError("no such place")
    for _ in range(count):
        ack, at = _read_ack(frame, at)
        refused = _refusal(ack)
        if refused:
            answer = LOCAL | refused
        else:
            _extend(ranges, ack)
            answer = len(ranges) - 1
        if runs and runs[-1][1] == answer:
            runs[-1][0] += 1
        else:
            runs.append([1, answer])
    packed = [RANGE.pack(*kept, len(reason)) + reason for *kept, reason in ranges]
    return struct.pack("<I", len(packed)) + b"".join(packed), b"".join(RUN.pack(*run) for run in runs), at


def _read_ack(frame: bytes, at: int) -> tuple[Ack, int]:
    found: dict = {}
    for kind, field, start, end in fields(frame, at):
        if kind == STRING and field == 1:
            found["receipt"] = frame[start + 4 : end]
        elif kind == I32 and field == 2:
            found["verdict"] = int.from_bytes(frame[start:end], "big", signed=True)
        elif kind == I32 and field == 3:
            found["delay_ms"] = int.from_bytes(frame[start:end], "big", signed=True)
            found["delay_set"] = True
        elif kind == STRING and field == 4:
            found["reason"] = frame[start + 4 : end]
        elif kind == STOP:
            at = end
    ack = Ack(**found)
    if ack.verdict == DONE:
        ack = Ack(ack.receipt)  # neither a delay nor a reason means anything; dropped, they cannot split a range
    elif ack.verdict == EXTEND:
        ack = Ack(ack.receipt, EXTEND, ack.delay_ms, ack.delay_set)
    return ack, at


def _refusal(ack: Ack) -> int:
    """The code that answers the ack here, 0 when it goes to the engine."""
    receipt = ack.receipt
    if len(receipt) != RECEIPT_SIZE or receipt[0] != TOKEN_VERSION or receipt[1] != 0:
        return STALE_RECEIPT
    delta = int.from_bytes(receipt[TOKEN_SIZE:], "little")
    if delta >= int.from_bytes(receipt[4:8], "little"):
        return STALE_RECEIPT
    if ack.verdict not in (DONE, RETRY, REJECT, EXTEND):
        return INVALID
    if ack.delay_set and (ack.delay_ms < 0 or (ack.verdict == EXTEND and ack.delay_ms > EXTEND_MS_MAX)):
        return INVALID
    return 0


def _extend(ranges: list[list], ack: Ack) -> None:
    token, delta = ack.receipt[:TOKEN_SIZE], int.from_bytes(ack.receipt[TOKEN_SIZE:], "little")
    reason = cut_text(ack.reason, REASON_BYTES_MAX)
    if ranges:
        last = ranges[-1]
        if last[0] == token and last[1] + last[2] == delta and last[3:] == [ack.verdict, ack.delay_ms, reason]:
            last[2] += 1
            return
    ranges.append([token, delta, 1, ack.verdict, ack.delay_ms, reason])


def cut_text(text: bytes, size_max: int) -> bytes:
    """At most `size_max` bytes of UTF-8, never half a character."""
    if len(text) <= size_max:
        return text
    end = size_max
    while end > 0 and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end]
