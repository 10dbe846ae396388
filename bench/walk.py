"""CPU of finding the messages in a send, per message.

Workload: one frame, walked again and again from warm cache: 1 and 50 messages of a 128-byte body, each with topic, key
and id, under one credential. Native: in a C loop, as the producer proxy calls it. Native from Python and pure: with the
objects of calls.py.
Excluded: sockets, decoding, everything after the walker. The frame is made before the clock starts. The best of five
runs counts, since other processes cause the rest.

    python -m bench.walk [--messages 200000]
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

from common import contract
from common.wire import walk as walk_pure


def make_frame(messages: int, body_bytes: int = 128) -> bytes:
    credential = contract.Credential(app="shop", key_id="2024-05", issued_at_ms=1_714_000_000_000, signature=b"s" * 32)
    batch = [
        contract.Message(topic="shop.order.paid", body=b"b" * body_bytes, key=f"customer-{i}", id=f"order-{i:08}")
        for i in range(messages)
    ]
    return contract.encode_call("send", 1, contract.SendRequest(credential=credential, messages=batch))


def best_ns(run: Callable[[int], object], rounds: int, messages: int, repeats: int = 5) -> float:
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter_ns()
        run(rounds)
        best = min(best, time.perf_counter_ns() - started)
    return best / rounds / messages


def ways() -> dict:
    """By name: a function of (frame, rounds), and a divisor of its rounds."""

    def repeat(walk: Callable[[bytes], object]):
        def run(frame: bytes, rounds: int) -> None:
            for _ in range(rounds):
                walk(frame)

        return run

    found = {"pure": (repeat(walk_pure.walk_send), 50)}
    try:
        from bench._walking import walk_send_rounds
        from common.wire import _native
    except ImportError:
        return found
    return {"native": (walk_send_rounds, 1), "native, from Python": (repeat(_native.walk_send), 10), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000, help="messages per run")
    arguments = parser.parse_args()
    for count in (1, 50):
        frame = make_frame(count)
        for name, (run, slower) in ways().items():
            rounds = max(1, arguments.messages // count // slower)
            ns = best_ns(partial(run, frame), rounds, count)
            print(f"walk_send {name}: {count} messages per call, {len(frame)} B: {ns:.1f} ns per message")


if __name__ == "__main__":
    main()
