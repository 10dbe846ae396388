"""CPU of the consumer proxy's work on bytes, per message and per ack.

Question: how long does building pull replies take, and reading calls with their acks, native and pure? One core, no
sockets, no engine; the answer and the call are made before the clock starts. Excluded: credentials, the link.
Run: python -m bench.deliver [--seconds 1]
"""

import argparse
import struct
import time
from collections.abc import Callable
from functools import partial

from consumer_proxy.pull import deliver as deliver_pure
from consumer_proxy.pull import native
from consumer_proxy.pull import read_call as call_pure
from consumer_proxy.pull.reply_format import REPLY_BYTES_MAX
from engine.link.pieces import AnswerPiece
from engine.link.pull import PullAnswer
from engine.link.receipt import TOKEN as TOKEN_BODY
from engine.link.record import encode_record

TOKEN = TOKEN_BODY.pack(1, 3, 1 << 20, 5, 1000, 7) + b"m" * 16


def answer(messages: int, body: int, own_id: bool, piece_records: int = 50) -> bytes:
    """Encode a PULL answer of `messages` records in pieces of one stored batch each."""
    fields = struct.pack(">BHI6sBHI", 11, 1, 6, b"orders", 11, 2, body) + bytes(body)
    if own_id:
        record = encode_record(fields + struct.pack(">BHI32s", 11, 6, 32, b"i" * 32) + b"\0")
    else:
        record = encode_record(fields + b"\0", bytes(range(16)))
    pieces = [
        AnswerPiece(TOKEN, 1000 + at, at, 3, piece_records, 1, 1_700_000_000_000, record * piece_records)
        for at in range(0, messages, piece_records)
    ]
    return PullAnswer.of((), pieces).payload


def call(acks: int) -> bytes:
    """Encode a pull that acknowledges one lease, message by message."""
    listed = [struct.pack(">BHI48s", 11, 1, 52, TOKEN) + struct.pack("<I", i) + b"\0" for i in range(acks)]
    credential = struct.pack(">BHI1sBHI1sBHqBHI32s", 11, 1, 1, b"a", 11, 2, 1, b"k", 10, 3, 1, 11, 4, 32, b"s" * 32)
    head = struct.pack(">HHI4siBHBH", 0x8001, 1, 4, b"pull", 1, 12, 1, 12, 1) + credential + b"\0"
    group = struct.pack(">BHI1s", 11, 2, 1, b"g")
    return head + group + struct.pack(">BHBI", 15, 7, 12, acks) + b"".join(listed) + b"\0\0"


def per_second(work: Callable[[], object], items: int, seconds: float) -> float:
    """Return items per second over at least `seconds`, best of three because the machine may be shared."""
    best = 0.0
    for _ in range(3):
        rounds, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds / 3:
            work()
            rounds += 1
        best = max(best, rounds * items / (time.perf_counter() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    seconds = parser.parse_args().seconds
    kinds = [("pure", deliver_pure.build_reply, call_pure.read_call)]
    if native.NATIVE:
        kinds.insert(0, ("native", native.build_reply, native.read_call))
    for kind, build, read in kinds:
        for messages, body, own_id in ((32, 128, False), (1000, 128, False), (1000, 128, True), (1000, 2048, False)):
            payload = answer(messages, body, own_id, min(messages, 50))
            rate = per_second(partial(build, 1, 0, payload, 4, 4, b"", b"", REPLY_BYTES_MAX), messages, seconds)
            name = f"deliver {messages} x {body} B, {'own' if own_id else 'assigned'} id"
            print(f"{kind:7} {name:36} {rate / 1e6:8.2f} M messages/s {1e9 / rate:9.1f} ns per message")
        for acks in (0, 32, 10_000):
            frame = call(acks)
            rate = per_second(partial(read, frame), max(acks, 1), seconds)
            unit = "acks" if acks else "calls"
            print(
                f"{kind:7} {f'read a pull with {acks} acks':36} {rate / 1e6:8.2f} M {unit}/s {1e9 / rate:18.1f} ns each"
            )


if __name__ == "__main__":
    main()
