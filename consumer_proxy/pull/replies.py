"""Replies that carry no deliveries, and the optional fields of those that do."""

import struct

from common.contract import PROTOCOL_ERROR, UNKNOWN_METHOD, encode_exception
from common.wire import WireError, walk_header
from common.wire.faults import WireFault
from consumer_proxy.pull.native import build_reply
from consumer_proxy.pull.positions import PositionReport
from consumer_proxy.pull.reply_format import ACK_SENTENCES, LOCAL, REFUSED, REPLY_BYTES_MAX, RUN
from consumer_proxy.response_fields import text_field

_INVALID_MESSAGE_TYPE = 2  # TApplicationException's number


def refusal(seqid: int, code: int, sentence: str, retry_after_ms: int | None, acks: int) -> bytes:
    """A response with this code. The acks may not have been accepted, so each is answered with the same code."""
    answer = code | REFUSED if code | REFUSED in ACK_SENTENCES else code
    runs = RUN.pack(acks, LOCAL | answer) if acks else b""
    return build_reply(
        seqid, code, b"", -1, 0, runs, tail(sentence=sentence, retry_after_ms=retry_after_ms), REPLY_BYTES_MAX
    )[0]


def tail(*, positions: bytes = b"", sentence: str = "", retry_after_ms: int | None = None) -> bytes:
    """Fields 4, 5 and 6 of a PullResponse."""
    parts = [positions]
    if retry_after_ms is not None:
        parts.append(struct.pack(">BHi", 8, 5, retry_after_ms))
    if sentence:
        parts.append(text_field(6, sentence))
    return b"".join(parts)


def position_reports(reports: list[PositionReport]) -> bytes:
    """Field 4 of a PullResponse. Every position must have its report."""
    parts = [struct.pack(">BHBI", 15, 4, 12, len(reports))]
    for topic, queue, report in reports:
        assert report is not None, "a position without its report"
        parts.append(struct.pack(">BHi", 8, 1, report.code) + text_field(2, topic) + struct.pack(">BHi", 8, 3, queue))
        for field, offset in ((4, report.next_offset), (5, report.min_offset), (6, report.end_offset)):
            if offset is not None:
                parts.append(struct.pack(">BHq", 10, field, offset))
        if report.error:
            parts.append(text_field(7, report.error))
        parts.append(b"\0")
    return b"".join(parts)


def not_a_call(frame: bytes, error: WireError) -> bytes:
    """The TApplicationException for bytes that are no pull. The framing is intact, so the connection may stay open."""
    kind = {WireFault.METHOD: UNKNOWN_METHOD, WireFault.KIND: _INVALID_MESSAGE_TYPE}.get(error.rule, PROTOCOL_ERROR)
    name = "pull"
    if error.rule == WireFault.METHOD:
        name = walk_header(frame)[0]  # stock clients compare the name in the answer with that of their call
    return encode_exception(name, error.seqid, kind, error.sentence)
