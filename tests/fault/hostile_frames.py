"""Bytes that no honest client sends, as (input → what must come of it); rows TH1 to TH8 of the catalogue of bad input.

Everything is made by hand with a credential that verifies, so that nothing is refused for the wrong reason.
"""

import math
import random
import struct
from collections.abc import Callable
from typing import NamedTuple

from tests.unit.common.wire import frames as f

CLOSED, EXCEPTION, WAITS, SERVED, TOO_LONG = "closed", "exception", "waits", "served", "too long"
"""Closed within 100 ms; a TApplicationException; nothing yet, for the frame is not complete; an ordinary answer; a
TApplicationException about the call's size and then an end, as soon as the call's head is there."""

MIB = 1 << 20


class Row(NamedTuple):
    """One hostile input.

    Attributes:
        make: from the credential's encoded struct to the bytes, framing not included for `wrapped` ones.
        expected: CLOSED, EXCEPTION, WAITS, SERVED, or a code of the contract.
        says: what the exception's or code's sentence contains: the field, where one is concerned.
        wrapped: sent framed and, in a second test, buffered; else sent as it is.
        buffered: what is expected instead when it comes unframed, where the framing cannot tell where it ends.
    """

    name: str
    make: Callable[[bytes], bytes]
    expected: str | int
    says: str = ""
    wrapped: bool = True
    buffered: str | int | None = None


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def raw(name: str, data: bytes, expected: str = CLOSED) -> Row:
    return Row(name, lambda _: data, expected, wrapped=False)


# TH1, TH2: what is decided before any credential is looked at; the same on both ports.
FOREIGN = [
    raw("frame length 0", b"\0\0\0\0\x80\x01\0\x01"),
    raw("frame length -1", b"\xff\xff\xff\xff\x80\x01\0\x01"),
    raw("frame length 2^31-1", b"\x7f\xff\xff\xff\x80\x01\0\x01"),
    raw("frame length one above the limit", struct.pack(">I", 16_384_001) + f.header(), TOO_LONG),
    raw("frame length one above the limit, without the head's end", struct.pack(">I", 16_384_001) + f.header()[:-1], WAITS),
    raw("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    raw("HTTP POST", b"POST /send HTTP/1.1\r\nContent-Length: 5\r\n\r\n\x80\x01\0\x01\0"),
    raw("TLS hello", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(32)),
    raw("SSH banner", b"SSH-2.0-OpenSSH_9.2\r\n"),
    raw("proxy protocol", b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n"),
    raw("Redis", b"*1\r\n$4\r\nPING\r\n"),
    raw("compact protocol", b"\x82\x21\x01\x04send"),
    raw("compact protocol in a frame", framed(b"\x82\x21\x01\x04send" + bytes(32))),
    raw("JSON protocol", b'[1,"send",1,0,{}]'),
    raw("JSON protocol in a frame", framed(b'[1,"send",1,0,{"1":{"rec":{}}}]')),
    raw("non-strict header", framed(f.text(b"send") + b"\x01" + f.i32(1) + f.STOP)),
    raw("non-strict header, buffered", f.text(b"send") + b"\x01" + f.i32(1) + f.STOP),
    raw("another version", b"\x80\x02\0\x01" + f.text(b"send")),
    raw("a stranger's long frame without a credential in front", struct.pack(">I", 1 * MIB) + f.header() + bytes(70_000),
        TOO_LONG),
    raw("one byte", b"\0", WAITS),
    raw("half a length", b"\0\0\0", WAITS),
    raw("a frame that lacks its last byte", framed(f.header() + f.STOP * 100)[:-1], WAITS),
]  # fmt: skip


def call(method: bytes, request: bytes, more: bytes = b"", kind: int = 1, seqid: int = 7) -> bytes:
    return f.header(method, kind, seqid) + f.struct_of(f.field(f.STRUCT, 1, request), more)


def send_request(credential: bytes, *messages: bytes, more: bytes = b"", listed: bytes | None = None) -> bytes:
    listed = f.list_of(f.STRUCT, *messages) if listed is None else listed
    return f.struct_of(f.field(f.STRUCT, 1, credential), f.field(f.LIST, 2, listed), more)


def pull_request(credential: bytes, *more: bytes, group: bytes = b"readers") -> bytes:
    return f.struct_of(f.field(f.STRUCT, 1, credential), f.field(f.STRING, 2, f.text(group)), *more)


def message(*fields: bytes, topic: bytes = b"orders") -> bytes:
    return f.message(*fields, topic=topic)


def send(credential: bytes, *messages: bytes, **how) -> bytes:
    return call(b"send", send_request(credential, *(messages or [message()]), **how))


def header_rows(method: bytes, request: Callable[[bytes], bytes]) -> list[Row]:
    """TH3 and the parts of TH4 and TH5 that lie outside the known fields, for either method."""
    return message_rows(method, request) + unknown_field_rows(method, request) + credential_rows(method, request)


def message_rows(method: bytes, request: Callable[[bytes], bytes]) -> list[Row]:
    """The method's name, the kind of the message, and its end."""

    def good(credential: bytes, **how) -> bytes:
        return call(method, request(credential), **how)

    def named(name: bytes) -> Callable[[bytes], bytes]:
        return lambda credential: call(name, request(credential))

    return [
        Row("unknown method", named(b"drop_all"), EXCEPTION, "no such method"),
        Row("the other proxy's method", named(b"pull" if method == b"send" else b"send"), EXCEPTION, "no such method"),
        Row("empty method", named(b""), EXCEPTION, "method name"),
        Row("a method name of 65 bytes", named(b"s" * 65), EXCEPTION, "method name", buffered=CLOSED),
        Row("a method name of 50 KiB", named(b"s" * 50 * 1024), EXCEPTION, "method name", buffered=CLOSED),
        Row("a method name that is no UTF-8", named(b"\xff\xfe"), EXCEPTION, "method name"),
        Row("a method name with NUL", named(method + b"\0"), EXCEPTION, "no such method"),
        Row("ONEWAY", lambda c: good(c, kind=4), EXCEPTION, "CALL"),
        Row("REPLY", lambda c: good(c, kind=2), EXCEPTION, "CALL"),
        Row("EXCEPTION", lambda c: good(c, kind=3), EXCEPTION, "CALL"),
        Row("kind 0", lambda c: good(c, kind=0), EXCEPTION, "CALL"),
        Row("kind 255", lambda c: good(c, kind=255), EXCEPTION, "CALL"),
        Row("seqid -1", lambda c: good(c, seqid=-1), SERVED),
        Row("two calls in one frame", lambda c: good(c) * 2, EXCEPTION, "after the call's end", buffered=SERVED),
        Row("one byte behind the call", lambda c: good(c) + b"\0", EXCEPTION, "after the call's end", buffered=SERVED),
        Row("only a header", lambda c: f.header(method), EXCEPTION, "past the end", buffered=WAITS),
        Row("no request", lambda c: f.header(method) + f.STOP, EXCEPTION, "missing"),
    ]  # fmt: skip


def unknown_field_rows(method: bytes, request: Callable[[bytes], bytes]) -> list[Row]:
    """Fields that no version knows: types, ids, depths and counts."""

    def good(credential: bytes, **how) -> bytes:
        return call(method, request(credential), **how)

    return [
        *[
            Row(f"an unknown field of type {kind}", lambda c, k=kind: good(c, more=f.field(k, 9, bytes(12)) + f.STOP),
                EXCEPTION, "type number", buffered=CLOSED)
            for kind in (1, 5, 7, 9, 16, 255)
        ],
        *[
            Row(f"an unknown field with id {number}", lambda c, n=number: good(c, more=f.field(f.I32, n, f.i32(1))), SERVED)
            for number in (-32768, -1, 0, 32767)
        ],
        *[
            Row(f"an unknown {name} nested {levels} deep", lambda c, k=kind, n=levels: good(c, more=f.field(k, 9, f.nested(k, n))),
                EXCEPTION, "deeper than 16", buffered=CLOSED)
            for name, kind in (("struct", f.STRUCT), ("list", f.LIST), ("map", f.MAP))
            for levels in (17, 10_000)
        ],
        Row("an unknown struct nested within the limit", lambda c: good(c, more=f.field(f.STRUCT, 9, f.nested(f.STRUCT, 12))), SERVED),
        *[
            Row(f"an unknown {name} of {count} elements", lambda c, k=kind, n=count, t=types: good(c, more=f.field(k, 9, t + f.i32(n))),
                EXCEPTION, "count", buffered={1000: WAITS, -1: CLOSED}.get(count, TOO_LONG))
            for name, kind, types in (("list", f.LIST, b"\x0b"), ("set", f.SET, b"\x08"), ("map", f.MAP, b"\x0b\x0b"))
            for count in (2**31 - 1, -1, 1000)
        ],
        Row("an unknown list of type 0 and 2^31-1 elements", lambda c: good(c, more=f.field(f.LIST, 9, b"\0" + f.i32(2**31 - 1))),
            EXCEPTION, "", buffered=CLOSED),
        Row("an unknown string of size -1", lambda c: good(c, more=f.field(f.STRING, 9, f.i32(-1))), EXCEPTION, "string size",
            buffered=CLOSED),
        Row("an unknown string of size 2^31-1", lambda c: good(c, more=f.field(f.STRING, 9, f.i32(2**31 - 1))), EXCEPTION,
            "past the end", buffered=TOO_LONG),
    ]  # fmt: skip


def credential_rows(method: bytes, request: Callable[[bytes], bytes]) -> list[Row]:
    """The request's and the credential's own form."""
    return [
        Row("a request that is a list", lambda c: f.header(method) + f.struct_of(f.field(f.LIST, 1, b"\x0c" + f.i32(0))), EXCEPTION,
            "type"),
        Row("a request without a credential", lambda c: call(method, f.struct_of(f.field(f.STRING, 2, f.text(b"g")))), EXCEPTION, ""),
        Row("a credential with a number for its signature", lambda c: call(method, request(
            f.struct_of(f.field(f.STRING, 1, f.text(b"a")), f.field(f.I32, 4, f.i32(1))))), EXCEPTION, "type"),
        Row("a credential whose application is no UTF-8", lambda c: call(method, request(f.struct_of(
            f.field(f.STRING, 1, f.text(b"\xff")), f.field(f.STRING, 2, f.text(b"k")), f.field(f.I64, 3, f.i64(0)),
            f.field(f.STRING, 4, f.text(b"s"))))), 104, "redential"),
        Row("issued at the least i64", lambda c: call(method, request(f.struct_of(
            f.field(f.STRING, 1, f.text(b"shop")), f.field(f.STRING, 2, f.text(b"k")), f.field(f.I64, 3, f.i64(-(2**63))),
            f.field(f.STRING, 4, f.text(b"s" * 32))))), 104, "credential"),
    ]  # fmt: skip


def _text(number: int, value: bytes, name: str, says: str, code: int = 100) -> Row:
    return Row(name, lambda c: send(c, message(f.field(f.STRING, number, f.text(value)))), code, says)


def _topic(value: bytes) -> Row:
    return Row(f"topic {value[:12]!r}", lambda c: send(c, message(topic=value)), 100, "Message.topic")


def _number(number: int, value: int, name: str, says: str) -> Row:
    return Row(name, lambda c: send(c, message(f.field(f.I64, number, f.i64(value)))), 100, says)


BAD_NAMES = [b"", b".", b"..", b"a/b", b"%2e", b"a\n", b"%RETRY%x", b"n" * 250, b"a\0b", b"a b", b"a:b", "ｏrders".encode(),
             "\u202eorders".encode(), b"\xff", b"\xed\xa0\x80", b"{x}", b"*"]  # fmt: skip

SEND = [
    *header_rows(b"send", lambda credential: send_request(credential, message())),
    # TH4
    Row("a message without a topic", lambda c: send(c, f.struct_of(f.field(f.STRING, 2, f.text(b"b")))), 100, "Message.topic"),
    Row("a topic that is a number", lambda c: send(c, f.struct_of(f.field(f.I32, 1, f.i32(1)))), EXCEPTION, "Message.topic"),
    Row("messages that are strings", lambda c: send(c, listed=f.list_of(f.STRING, f.text(b"m"))), EXCEPTION, "SendRequest.messages"),
    Row("a topic twice, of which the last counts", lambda c: send(c, f.struct_of(
        f.field(f.STRING, 1, f.text(b"a/b")), f.field(f.STRING, 1, f.text(b"orders")))), SERVED),
    Row("a durability out of the contract", lambda c: send(c, more=f.field(f.I32, 4, f.i32(77))), 100, "SendRequest.durability"),
    Row("a negative timeout", lambda c: send(c, more=f.field(f.I32, 3, f.i32(-1))), 100, "SendRequest.timeout_ms"),
    Row("the longest timeout", lambda c: send(c, more=f.field(f.I32, 3, f.i32(2**31 - 1))), SERVED),
    # TH5
    Row("100,001 properties", lambda c: send(c, message(f.field(f.MAP, 5, f.map_of(*[(b"", b"")] * 100_001)))), EXCEPTION, "100,000"),
    Row("properties with one key twice", lambda c: send(c, message(f.field(f.MAP, 5, f.map_of((b"a", b"1"), (b"a", b"2"))))), SERVED),
    Row("65 properties", lambda c: send(c, message(f.field(f.MAP, 5, f.map_of(*[(b"%d" % n, b"") for n in range(65)])))), 100,
        "Message.properties"),
    Row("properties keyed by lists", lambda c: send(c, message(
        f.field(f.MAP, 5, b"\x0f\x0b" + f.i32(1) + b"\x08" + f.i32(0) + f.text(b"")))), EXCEPTION, "Message.properties"),
    # TH6
    Row("a body of size -1", lambda c: send(c, message(f.field(f.STRING, 2, f.i32(-1)))), EXCEPTION, "size", buffered=CLOSED),
    Row("a body that says 2^31-1 bytes", lambda c: send(c, message(f.field(f.STRING, 2, f.i32(2**31 - 1)))), EXCEPTION, "past the end",
        buffered=TOO_LONG),
    _text(3, b"\xff", "a key that is no UTF-8", "Message.key"),
    _text(3, b"\xed\xa0\x80", "a key that is a surrogate", "Message.key"),
    _text(3, b"k" * 4097, "a key of 4,097 bytes", "Message.key"),
    _text(3, b"k" * MIB, "a key of 1 MiB", "Message", 100),
    _text(4, b"", "an empty tag", "Message.tag"),
    _text(4, b"a b", "a tag of two words", "Message.tag"),
    _text(4, b"a\nb", "a tag with a line feed", "Message.tag"),
    _text(4, b"t" * 129, "a tag of 129 bytes", "Message.tag"),
    _text(6, b"", "an empty id", "Message.id"),
    _text(6, b"i" * 65, "an id of 65 characters", "Message.id"),
    _text(6, b"\xc3", "an id that is no UTF-8", "Message.id"),
    Row("a key with NUL, an emoji and right-to-left", lambda c: send(c, message(
        f.field(f.STRING, 3, f.text("\0\U0001f600\u202e".encode())))), SERVED),
    _number(7, -1, "delivery at -1", "Message.deliver_at_ms"),
    _number(7, 2**63 - 1, "delivery at 2^63-1", "Message.deliver_at_ms"),
    _number(8, -1, "a delay of -1", "Message.delay_ms"),
    _number(8, 2**63 - 1, "a delay of 2^63-1", "Message.delay_ms"),
    *[
        Row(f"an unknown double {value}", lambda c, v=value: send(c, message(f.field(f.DOUBLE, 99, struct.pack(">d", v)))), SERVED)
        for value in (math.nan, math.inf)
    ],
    # TH7, TH8
    *[_topic(name) for name in BAD_NAMES],
    Row("no messages", lambda c: send(c, listed=f.list_of(f.STRUCT)), SERVED),
    Row("1,001 messages", lambda c: send(c, *[message()] * 1001), EXCEPTION, "SendRequest.messages"),
    Row("a body of 4 MiB and one byte", lambda c: send(c, message(f.field(f.STRING, 2, f.text(bytes(4 * MIB + 1))))), 101, "Message.body"),
    Row("properties above 32 KiB", lambda c: send(c, message(f.field(f.MAP, 5, f.map_of((b"k", b"v" * 32_769))))), 101,
        "Message.properties"),
]  # fmt: skip


def pull(credential: bytes, *more: bytes, **how) -> bytes:
    return call(b"pull", pull_request(credential, *more, **how))


def _pull_number(number: int, value: int, says: str) -> Row:
    return Row(f"{says} {value}", lambda c: pull(c, f.field(f.I32, number, f.i32(value))), 100, f"PullRequest.{says}")


def ack(*fields: bytes) -> bytes:
    return f.field(f.LIST, 7, f.list_of(f.STRUCT, f.struct_of(*fields)))


PULL = [
    *header_rows(b"pull", lambda credential: pull_request(credential, f.field(f.LIST, 3, f.list_of(f.STRING, f.text(b"orders"))))),
    Row("no group", lambda c: call(b"pull", f.struct_of(f.field(f.STRUCT, 1, c))), EXCEPTION, "PullRequest.group"),
    *[Row(f"group {name[:12]!r}", lambda c, n=name: pull(c, group=n), 100, "PullRequest.group") for name in BAD_NAMES],
    *[
        Row(f"topic {name[:12]!r}", lambda c, n=name: pull(c, f.field(f.LIST, 3, f.list_of(f.STRING, f.text(n)))), 100,
            "PullRequest.topics")
        for name in BAD_NAMES
    ],
    *[_pull_number(4, value, "max_messages") for value in (-1, -(2**31), 10**9, 2**31 - 1)],
    *[_pull_number(5, value, "max_bytes") for value in (-1, 2**31 - 1)],
    *[_pull_number(6, value, "wait_ms") for value in (-1, -(2**31))],
    *[_pull_number(9, value, "invisible_ms") for value in (-1, 2**31 - 1)],
    Row("257 topics", lambda c: pull(c, f.field(f.LIST, 3, f.list_of(f.STRING, *[f.text(b"orders")] * 257))), EXCEPTION,
        "PullRequest.topics"),
    Row("10,001 acknowledgements", lambda c: pull(c, f.field(f.LIST, 7, f.list_of(
        f.STRUCT, *[f.struct_of(f.field(f.STRING, 1, f.text(b"")))] * 10_001))), EXCEPTION, "PullRequest.acks"),
    Row("1,001 positions", lambda c: pull(c, f.field(f.LIST, 8, f.list_of(f.STRUCT, *[f.STOP] * 1001))), EXCEPTION,
        "PullRequest.positions"),
    Row("a receipt that is a number", lambda c: pull(c, ack(f.field(f.I32, 1, f.i32(1)))), EXCEPTION, "Ack.receipt"),
    Row("a receipt of size -1", lambda c: pull(c, ack(f.field(f.STRING, 1, f.i32(-1)))), EXCEPTION, "size", buffered=CLOSED),
    Row("a receipt that says 2^31-1 bytes", lambda c: pull(c, ack(f.field(f.STRING, 1, f.i32(2**31 - 1)))), EXCEPTION, "past the end",
        buffered=TOO_LONG),
    Row("a position without a topic", lambda c: pull(c, f.field(f.LIST, 8, f.list_of(f.STRUCT, f.STOP))), EXCEPTION, "Position"),
]  # fmt: skip


def flipped(frame: bytes, seed: int) -> bytes:
    """The frame with one to eight bits flipped behind its method's name."""
    chance, data = random.Random(seed), bytearray(frame)
    for _ in range(chance.randrange(1, 9)):
        data[chance.randrange(16, len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


# Frames of 4 MiB that cost the most for their size. The credential in front lets a stranger send them.
def _heavy(whole: Callable[..., bytes]) -> dict[str, Callable[[bytes], bytes]]:
    return {
        "100,001 elements in an unknown list": lambda c: whole(
            c, f.field(f.LIST, 99, f.list_of(f.STRING, *[f.text(b"x" * 36)] * 100_001))
        ),
        "100,000 elements in an unknown list": lambda c: whole(
            c, f.field(f.LIST, 99, f.list_of(f.STRING, *[f.text(b"x" * 36)] * 99_990))
        ),
        "a list of 4 M booleans": lambda c: whole(c, f.field(f.LIST, 99, b"\x02" + f.i32(4 * MIB) + bytes(4 * MIB))),
        "a million unknown fields": lambda c: whole(c, f.field(f.BOOL, 99, b"\1") * MIB),
        "random bytes behind the credential": lambda c: whole(c, random.Random(1).randbytes(4 * MIB)),
        "an unknown string that lacks one byte": lambda c: whole(c, f.field(f.STRING, 99, f.text(bytes(4 * MIB))))[:-3],
    }


HEAVY_SEND = _heavy(lambda credential, more: send(credential, more=more)) | {
    "100,000 properties": lambda c: send(c, message(f.field(f.MAP, 5, f.map_of(*[(b"k" * 16, b"v" * 17)] * 99_990)))),
    "a million unknown fields in a message": lambda c: send(c, message(f.field(f.BOOL, 99, b"\1") * MIB)),
    "1,000 messages whose keys are no UTF-8": lambda c: send(
        c, *[message(f.field(f.STRING, 3, f.text(b"\xff" * 4090)))] * 1000
    ),
    "1,000 messages to nobody's topic": lambda c: send(
        c, *[message(f.field(f.STRING, 2, f.text(bytes(4100))), topic=b"nobodys")] * 1000
    ),
}
HEAVY_PULL = _heavy(pull) | {
    "10,000 acknowledgements with long reasons": lambda c: pull(c, f.field(f.LIST, 7, f.list_of(f.STRUCT, *[
        f.struct_of(f.field(f.STRING, 1, f.text(b"r" * 52)), f.field(f.STRING, 4, f.text(b"e" * 330)))] * 10_000))),
    "1,000 positions in nobody's topic": lambda c: pull(c, f.field(f.LIST, 8, f.list_of(f.STRUCT, *[
        f.struct_of(f.field(f.STRING, 1, f.text(b"t")), f.field(f.I32, 2, f.i32(0)), f.field(f.STRING, 99, f.text(bytes(4100))))] * 1000))),
}  # fmt: skip
