"""Decodes a frame into a Call and merges its acks into ranges. The reference of _read_call.pyx, equal byte for byte."""

from common.wire import walk_pull
from common.wire.calls import HAS_TOPICS_AFTER, Ack
from common.wire.faults import ACK_FAULTS, AckFault
from consumer_proxy.call import Call
from consumer_proxy.pull.reply_format import EXTEND_MS_MAX, LOCAL, REASON_BYTES_MAX, RUN
from engine.link.acknowledgement import DELAY_UNSET, DONE, EXTEND, REJECT, RELEASE, RETRY, AckRange, AckRanges
from engine.link.codes import INVALID, STALE_RECEIPT
from engine.link.receipt import TOKEN_SIZE, TOKEN_VERSION, count_of_token, split_receipt


def read_call(frame: bytes) -> Call:
    """Scan one pull and merge its acks.

    Neighbours that acknowledge consecutive messages of one lease with one verdict, delay and reason share a range. A
    malformed receipt is answered here, as is a verdict or delay that the contract does not have.

    Raises:
        WireError: the bytes are no pull.
    """
    call = walk_pull(frame)
    ranges, runs = merge_acks(call.acks)
    return Call(
        call.seqid,
        call.fault,
        call.credential,
        frame[call.group_start : call.group_start + call.group_size],
        frame[call.spans[0][0] - 4 : sum(call.spans[-1])] if call.spans else b"",
        call.position_count,
        bool(call.flags & HAS_TOPICS_AFTER),
        call.max_messages,
        call.max_bytes,
        call.wait_ms,
        call.invisible_ms,
        len(call.acks),
        ranges,
        runs,
    )


def merge_acks(acks: list[Ack]) -> tuple[bytes, bytes]:
    """Merge acks: (ranges in the encoded form of AckRanges, runs of reply_format.RUN with the answer to each ack)."""
    ranges: list[AckRange] = []
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
    return AckRanges.of(ranges).encoded, b"".join(RUN.pack(*run) for run in runs)


def _refusal(ack: Ack) -> int:
    """The code by which the proxy answers the ack; 0: the ack goes to the engine."""
    if ack.fault:
        return int(ACK_FAULTS[AckFault(ack.fault)][0])
    receipt = ack.receipt
    parts = split_receipt(receipt)
    if parts is None or receipt[0] != TOKEN_VERSION or receipt[1] != 0:
        return STALE_RECEIPT
    if parts[1] >= count_of_token(receipt):
        return STALE_RECEIPT
    if ack.verdict == EXTEND and ack.delay_ms > EXTEND_MS_MAX:
        return INVALID
    return 0


def _extend(ranges: list[AckRange], ack: Ack) -> None:
    token, delta = ack.receipt[:TOKEN_SIZE], int.from_bytes(ack.receipt[TOKEN_SIZE:], "little")
    # Fields that the verdict ignores are dropped, so that they cannot split a range.
    delay_ms = DELAY_UNSET if ack.verdict in (DONE, RELEASE) else ack.delay_ms
    told = ack.frame[ack.reason_start : ack.reason_start + ack.reason_size] if ack.verdict in (RETRY, REJECT) else b""
    reason = cut_text(told, REASON_BYTES_MAX)
    if ranges:
        last = ranges[-1]
        if last == AckRange(token, delta - last.count, last.count, ack.verdict, delay_ms, reason):
            ranges[-1] = last._replace(count=last.count + 1)
            return
    ranges.append(AckRange(token, delta, 1, ack.verdict, delay_ms, reason))


def cut_text(text: bytes, size_max: int) -> bytes:
    """Cut UTF-8 to at most `size_max` bytes, at a character."""
    if len(text) <= size_max:
        return text
    end = size_max
    while end > 0 and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end]
