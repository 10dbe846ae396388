"""Builds the Thrift reply from an answer's pieces. The reference of _deliver.pyx, equal byte for byte."""

import struct
from typing import NamedTuple

from common.reply_token import bind_token
from consumer_proxy.pull.reply_format import ACK_SENTENCES, ACK_SENTENCES_MAX, LOCAL, OF_ENGINE, REFUSED, RUN
from consumer_proxy.pull.skip import STRING, fields
from consumer_proxy.response_fields import SOURCE_HEAD
from engine.link.codes import INVALID
from engine.link.errors import PayloadError
from engine.link.pieces import AnswerPiece, read_pieces
from engine.link.receipt import NO_TOKEN, encode_receipt, queue_of_token
from engine.link.record import REPLY_BY_AT, REPLY_TOKEN_SIZE, StoredRecord, read_record

HEADER = b"\x80\x01\x00\x02\x00\x00\x00\x04pull"
RESULT = b"\x0c\x00\x00"


class ReplyKeys(NamedTuple):
    """What all deliveries of a reply need. Attributes: sources: field 10 of a Delivery, by topic hash."""

    reply_key: bytes
    sources: dict[int, bytes]


def build_reply(
    seqid: int,
    code: int,
    payload: bytes,
    pieces_at: int,
    codes_at: int,
    runs: bytes,
    tail: bytes,
    size_max: int,
    reply_key: bytes = b"",
    sources: bytes = b"",
) -> tuple[bytes, int, int, list[tuple[int, int]]]:
    """Build the whole REPLY message of one pull; returns how many of the answer's records it carries.

    Records are added in order until the next one would make the message longer than `size_max`. The others are still
    leased: the caller gives them back.

    Args:
        seqid: the call's, signed 32 bit. code: of the whole call.
        payload: the answer, as engine.link.pull lays it out.
        pieces_at: position of its piece count; -1: there are no pieces.
        codes_at: position of its ack codes.
        runs: the answer to each ack, in order (reply_format.RUN), as made by `merge_acks`.
        tail: fields 4 and up of the PullResponse, encoded.
        reply_key: of the application, for the tokens of requests; only a reply without messages may leave it out.
        sources: rows of response_fields.SOURCE_HEAD: what leased deliveries of a topic tell of their source.
    Returns:
        (message, records given, records held, malformed records). A malformed record's message is not one whole
        Thrift struct, so that clients would read what comes after it as fields of the reply. It is left out and counts
        as given; each is (number of the piece, index in the piece).
    Raises:
        PayloadError: the answer is not as the link defines it.
    """
    if not -1 <= pieces_at <= len(payload) or not 0 <= codes_at <= len(payload):
        raise PayloadError("a part of the answer starts after its end")
    results, acks = _results(payload[codes_at:], runs)
    head = HEADER + struct.pack(">i", seqid) + RESULT + b"\x08\x00\x01" + struct.pack(">i", code)
    end = b"\x0f\x00\x03\x0c" + struct.pack(">I", acks) + results + tail + b"\0\0"
    room = size_max - len(head) - 8 - len(end)
    malformed: list[tuple[int, int]] = []
    keys = ReplyKeys(reply_key, sources_of(sources))
    given, held = _deliveries(payload, pieces_at, room, malformed, keys) if pieces_at >= 0 else ([], 0)
    message = b"".join([head, b"\x0f\x00\x02\x0c", struct.pack(">I", len(given)), *given, end])
    return message, len(given) + len(malformed), held, malformed


def _deliveries(
    payload: bytes, at: int, room: int, malformed: list[tuple[int, int]], keys: ReplyKeys
) -> tuple[list[bytes], int]:  # fmt: skip
    given: list[bytes] = []
    held = 0
    is_full = False
    for number, piece in enumerate(read_pieces(payload, at)):
        for index, (record, message_id) in enumerate(_records(piece, number)):
            held += 1
            if message_id is None:
                if not is_full:
                    malformed.append((number, index))
                continue
            delivery = _delivery(piece, index, record, message_id, keys)
            is_full = is_full or len(delivery) > room
            if not is_full:
                room -= len(delivery)
                given.append(delivery)
    return given, held


def _delivery(piece: AnswerPiece, index: int, record: StoredRecord, message_id: bytes, keys: ReplyKeys) -> bytes:
    receipt = b"" if piece.token == NO_TOKEN else encode_receipt(piece.token, piece.first_delta + index & 0xFFFFFFFF)
    offset = piece.first_offset + index & 0xFFFFFFFF_FFFFFFFF
    return b"".join(
        [
            struct.pack(">BHI", 11, 1, len(receipt)) + receipt,
            struct.pack(">BHI BHQ", 8, 2, piece.queue, 10, 3, offset),
            struct.pack(">BHI BHq", 8, 4, piece.attempt, 10, 5, piece.stored_at_ms),
            struct.pack(">BHI", 11, 6, len(message_id)) + message_id,
            b"\x0c\x00\x07"
            + record.message
            + (_reply_fields(record.reply_token, keys.reply_key) if receipt else b"")
            + keys.sources.get(queue_of_token(piece.token)[0], b"")
            + b"\0",
        ]
    )


def sources_of(table: bytes) -> dict[int, bytes]:
    """The table of sources by topic hash; the first row of a topic counts."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(table):
        hashed, size = SOURCE_HEAD.unpack_from(table, at)
        at += SOURCE_HEAD.size + size
        found.setdefault(hashed, table[at - size : at])
    return found


def _reply_fields(token: bytes, reply_key: bytes) -> bytes:
    """Fields 8 and 9 of a request's Delivery. The token becomes valid for one application alone."""
    if not token:
        return b""
    (reply_by_ms,) = struct.unpack_from("<q", token, REPLY_BY_AT)
    return (
        struct.pack(">BHI", 11, 8, REPLY_TOKEN_SIZE)
        + bind_token(token, reply_key)
        + struct.pack(">BHq", 10, 9, reply_by_ms)
    )


def _records(piece: AnswerPiece, number: int) -> list[tuple[StoredRecord, bytes | None]]:
    """The records of piece `number` with the ids that clients see; None: the message is malformed."""
    records = []
    at = 0
    for index in range(piece.count):
        try:
            record, at = read_record(piece.records, at)
        except PayloadError as error:
            raise PayloadError(f"record {index} of {piece.count} in piece {number} is damaged") from error
        own = own_id(record.message)
        records.append((record, own if own is None else record.assigned_id.hex().encode() or own))
    if at != len(piece.records):
        raise PayloadError(f"piece {number} has bytes after its {piece.count} records")
    return records


def own_id(message: bytes) -> bytes | None:
    """Field 6 of a stored Message; the last one wins, as in Thrift. None unless the bytes are one whole struct."""
    found, end = b"", 0
    try:
        for kind, field, at, end in fields(message, 0):
            if kind == STRING and field == 6:
                found = message[at + 4 : end]
    except PayloadError:
        return None
    return found if end == len(message) else None


def _results(codes: bytes, runs: bytes) -> tuple[bytes, int]:
    """Encode the elements of the ack_results list; return them and their number."""
    parts = []
    acks = told = 0
    for count, answer in RUN.iter_unpack(runs[: len(runs) // RUN.size * RUN.size]):
        code = _code_of(codes, answer)
        acks += count
        plain = b"\x08\x00\x01" + struct.pack(">I", code & ~(REFUSED | OF_ENGINE))
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
        raise PayloadError(f"no code for ack range {answer}")
    code = int.from_bytes(codes[2 * answer : 2 * answer + 2], "little")
    return code | OF_ENGINE if code == INVALID else code
