"""Messages whose ids the log checks, and what it answers."""

import struct

from machine import NOW, Machine

APPENDED = struct.Struct("<HxxIQ")
OK, DUPLICATE, INVALID = 0, 2, 100
WINDOW = 10_000


def message(shown: bytes, body: bytes = b"") -> bytes:
    """Thrift binary of a message that has an id, and a body."""
    fields = (
        b"\x0b\x00\x02" + struct.pack(">i", len(body)) + body + b"\x0b\x00\x06" + struct.pack(">i", len(shown)) + shown
    )
    return fields + b"\0"


def batch(m: Machine, queue: int, shown: bytes, window_ms: int = WINDOW, topic_id: int = 1, body: bytes = b"") -> bytes:
    """A batch of one message whose id is to be checked."""
    return check(m.batch(topic_id, queue, [message(shown, body)]), window_ms)


def check(made: bytes, window_ms: int = WINDOW) -> bytes:
    """The batch with the flag."""
    return made[:11] + b"\1" + made[12:28] + window_ms.to_bytes(4, "little") + made[32:]


def send(m: Machine, *batches: bytes, now_ms: int = NOW) -> list[tuple[int, int, int]]:
    """[(code, queue, offset)] of an append."""
    return list(APPENDED.iter_unpack(m.log.appender.append_results(b"".join(batches), len(batches), now_ms)))
