"""From the engine's pieces to the Thrift reply: the reference that _deliver.pyx equals byte for byte."""

import struct
from collections.abc import Iterator

from consumer_proxy.pull.layout import (
    ACK_SENTENCES,
    ACK_SENTENCES_MAX,
    ASSIGNED_ID,
    ASSIGNED_ID_SIZE,
    LOCAL,
    PIECE,
    REPLY_BY_AT,
    RUN,
    TOKEN_SIZE,
    TRAILER,
    TRAILER_SIZE,
    DeliverError,
)
from consumer_proxy.pull.skip import STRING, fields

NO_RECEIPT = bytes(TOKEN_SIZE)
HEADER = b"\x80\x01\x00\x02\x00\x00\x00\x04pull"
RESULT = b"\x0c\x00\x00"


def build_reply(
    seqid: int, code: int, payload: bytes, pieces_at: int, codes_at: int, runs: bytes, tail: bytes, size_max: int
) -> tuple[bytes, int, int]:
    """The whole REPLY message of one pull, and how many of the records that the answer holds are in it.

    Records are given in order until the next one would make the message longer than `size_max`. What is held but not given is
    leased all the same: the caller gives it back.

    Args:
        seqid: the call's, signed 32 bit. code: of the whole call.
        payload: the engine's answer.
        pieces_at: where its piece count starts; -1: there are no pieces.
        codes_at: where its ack codes start.
        runs: what answers each ack, in order (layout.RUN), as planned by `plan_acks`.
        tail: fields 4 and up of the PullResponse, encoded.
    Returns:
        (message, records given, records held)
    Raises:
        DeliverError: the answer is not as the link defines it.
    """
    if not -1 <= pieces_at <= len(payload) or not 0 <= codes_at <= len(payload):
        raise DeliverError("a part of the answer starts behind its end")
    results, acks = _results(payload[codes_at:], runs)
    head = HEADER + struct.pack(">i", seqid) + RESULT + b"\x08\x00\x01" + struct.pack(">i", code)
    end = b"\x0f\x00\x03\x0c" + struct.pack(">I", acks) + results + tail + b"\0\0"
    room = size_max - len(head) - 8 - len(end)
    given, held = _deliveries(payload, pieces_at, room) if pieces_at >= 0 else ([], 0)
    message = b"".join([head, b"\x0f\x00\x02\x0c", struct.pack(">I", len(given)), *given, end])
    return message, len(given), held


def _deliveries(payload: bytes, at: int, room: int) -> tuple[list[bytes], int]:
    given: list[bytes] = []
    held = 0
    full = False
    for token, offset, delta, queue, attempt, stored_at_ms, records in read_pieces(payload, at):
        for i, (message_id, message, request) in enumerate(records):
            receipt = b"" if token == NO_RECEIPT else token + struct.pack("<I", delta + i & 0xFFFFFFFF)
            delivery = b"".join(
                [
                    struct.pack(">BHI", 11, 1, len(receipt)) + receipt,
                    struct.pack(">BHI BHQ", 8, 2, queue, 10, 3, offset + i & 0xFFFFFFFF_FFFFFFFF),
                    struct.pack(">BHI BHq", 8, 4, attempt, 10, 5, stored_at_ms),
                    struct.pack(">BHI", 11, 6, len(message_id)) + message_id,
                    b"\x0c\x00\x07" + message + (_reply_fields(request) if receipt else b"") + b"\0",
                ]
            )
            full = full or len(delivery) > room
            if not full:
                room -= len(delivery)
                given.append(delivery)
            held += 1
    return given, held


def _reply_fields(request: bytes) -> bytes:
    """Fields 8 and 9 of a request's Delivery."""
    if not request:
        return b""
    (reply_by_ms,) = struct.unpack_from("<q", request, REPLY_BY_AT)
    return struct.pack(">BHI", 11, 8, TRAILER_SIZE) + request + struct.pack(">BHq", 10, 9, reply_by_ms)


def read_pieces(
    payload: bytes, at: int
) -> Iterator[tuple[bytes, int, int, int, int, int, list[tuple[bytes, bytes, bytes]]]]:
    """Each piece as (token, offset, delta, queue, attempt, stored_at_ms, [(id, message, a request's token or nothing)…])."""
    if len(payload) - at < 4:
        raise DeliverError("the answer ends before its piece count")
    pieces = int.from_bytes(payload[at : at + 4], "little")
    at += 4
    for i in range(pieces):
        if len(payload) - at < PIECE.size:
            raise DeliverError(f"piece {i} of {pieces} runs past the answer")
        token, offset, delta, queue, count, attempt, stored_at_ms, size, _ = PIECE.unpack_from(payload, at)
        at += PIECE.size
        if size > len(payload) - at:
            raise DeliverError(f"piece {i} of {pieces} runs past the answer")
        records = _read_records(payload[at : at + size], count, i)
        at += size
        yield token, offset, delta, queue, attempt, stored_at_ms, records
    if at != len(payload):
        raise DeliverError("bytes behind the last piece")


def _read_records(block: bytes, count: int, piece: int) -> list[tuple[bytes, bytes, bytes]]:
    records = []
    at = 0
    for k in range(count):
        size = int.from_bytes(block[at : at + 4], "little")
        record = block[at + 4 : at + 4 + size]
        try:
            if size < 1 or len(record) < size:
                raise DeliverError
            records.append(_read_record(record))
        except DeliverError as error:
            raise DeliverError(f"record {k} of {count} in piece {piece} is damaged") from error
        at += 4 + size
    if at != len(block):
        raise DeliverError(f"piece {piece} has bytes behind its {count} records")
    return records


def _read_record(record: bytes) -> tuple[bytes, bytes, bytes]:
    message_at = 1 + (ASSIGNED_ID_SIZE if record[0] & ASSIGNED_ID else 0)
    end = len(record) - (TRAILER_SIZE if record[0] & TRAILER else 0)
    if end < message_at:
        raise DeliverError
    message = record[message_at:end]
    shown = record[1:message_at].hex().encode() if message_at > 1 else own_id(message)
    return shown, message, record[end:]


def own_id(message: bytes) -> bytes:
    """Field 6 of a stored Message; the last one wins as in Thrift."""
    found = b""
    for kind, field, at, end in fields(message, 0):
        if kind == STRING and field == 6:
            found = message[at + 4 : end]
    return found


def _results(codes: bytes, runs: bytes) -> tuple[bytes, int]:
    """The elements of the ack_results list, and their number."""
    parts = []
    acks = told = 0
    for count, answer in RUN.iter_unpack(runs[: len(runs) // RUN.size * RUN.size]):
        code = _code_of(codes, answer)
        acks += count
        plain = b"\x08\x00\x01" + struct.pack(">I", code)
        sentence = ACK_SENTENCES.get(code)
        with_sentence = min(count, ACK_SENTENCES_MAX - told) if code else 0
        told += with_sentence
        if sentence is not None:
            parts.append((plain + struct.pack(">BHI", 11, 2, len(sentence)) + sentence + b"\0") * with_sentence)
            count -= with_sentence
        parts.append((plain + b"\0") * count)
    return b"".join(parts), acks


def _code_of(codes: bytes, answer: int) -> int:
    if answer & LOCAL:
        return answer & 0xFFFF
    if 2 * answer + 2 > len(codes):
        raise DeliverError(f"no code for ack range {answer}")
    return int.from_bytes(codes[2 * answer : 2 * answer + 2], "little")
