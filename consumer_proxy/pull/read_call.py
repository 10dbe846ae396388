"""From a frame to a Call, its acks merged into ranges: the reference that _call.pyx equals byte for byte."""

import struct

from common.wire import walk_pull
from common.wire.calls import Ack
from common.wire.faults import ACK_FAULTS, AckFault
from consumer_proxy.pull.call import Call
from consumer_proxy.pull.layout import (
    DELAY_UNSET,
    DONE,
    EXTEND,
    EXTEND_MS_MAX,
    LOCAL,
    RANGE,
    REASON_BYTES_MAX,
    RECEIPT_SIZE,
    RUN,
    TOKEN_SIZE,
    TOKEN_VERSION,
)

INVALID, STALE_RECEIPT = 100, 106


def read_call(frame: bytes) -> Call:
    """Walk one pull and merge its acks.

    Neighbours that acknowledge consecutive messages of one lease with one verdict, delay and reason share a range. A
    receipt that cannot be ours is answered here, as is a verdict or delay that the contract does not have.

    Raises:
        WireError: the bytes are no pull.
    """
    call = walk_pull(frame)
    ranges, runs = plan_acks(call.acks)
    return Call(
        call.seqid,
        call.fault,
        call.credential,
        frame[call.group_start : call.group_start + call.group_size],
        frame[call.spans[0][0] - 4 : sum(call.spans[-1])] if call.spans else b"",
        call.position_count,
        call.max_messages,
        call.max_bytes,
        call.wait_ms,
        call.invisible_ms,
        len(call.acks),
        ranges,
        runs,
    )


def plan_acks(acks: list[Ack]) -> tuple[bytes, bytes]:
    """(ranges as in the PULL request with their u32 count in front, runs of layout.RUN that say what answers each ack)"""
    ranges: list[list] = []  # token, first, count, verdict, delay_ms, reason
    runs: list[list[int]] = []
    for ack in acks:
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
    return struct.pack("<I", len(packed)) + b"".join(packed), b"".join(RUN.pack(*run) for run in runs)


def _refusal(ack: Ack) -> int:
    """The code that answers the ack here, 0 when it goes to the engine."""
    if ack.fault:
        return int(ACK_FAULTS[AckFault(ack.fault)][0])
    receipt = ack.receipt
    if len(receipt) != RECEIPT_SIZE or receipt[0] != TOKEN_VERSION or receipt[1] != 0:
        return STALE_RECEIPT
    if _delta(receipt) >= int.from_bytes(receipt[4:8], "little"):
        return STALE_RECEIPT
    if ack.verdict == EXTEND and ack.delay_ms > EXTEND_MS_MAX:
        return INVALID
    return 0


def _delta(receipt: bytes) -> int:
    return int.from_bytes(receipt[TOKEN_SIZE:], "little")


def _extend(ranges: list[list], ack: Ack) -> None:
    token, delta = ack.receipt[:TOKEN_SIZE], _delta(ack.receipt)
    # What means nothing to a verdict is dropped, so that it cannot split a range.
    delay_ms = DELAY_UNSET if ack.verdict == DONE else ack.delay_ms
    told = b"" if ack.verdict in (DONE, EXTEND) else ack.frame[ack.reason_start : ack.reason_start + ack.reason_size]
    reason = cut_text(told, REASON_BYTES_MAX)
    if ranges:
        last = ranges[-1]
        if last[0] == token and last[1] + last[2] == delta and last[3:] == [ack.verdict, delay_ms, reason]:
            last[2] += 1
            return
    ranges.append([token, delta, 1, ack.verdict, delay_ms, reason])


def cut_text(text: bytes, size_max: int) -> bytes:
    """At most `size_max` bytes of UTF-8, never half a character."""
    if len(text) <= size_max:
        return text
    end = size_max
    while end > 0 and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end]
