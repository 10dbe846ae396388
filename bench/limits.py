"""What do the limits cost a message on the producer proxy's hot path?

Workload: calls of 1 and of 50 messages through the gate, in a C loop: without any limit; with limits of the topic, the application and
the proxy, messages and bytes each; and over them, so that every call is refused. Excluded: the walk, the append, the answer. The best
of five runs counts.

    python -m bench.limits [--messages 2000000]
"""

import argparse
import time

from producer_proxy._gate import HotGate

from bench._limiting import gate_rounds
from common.limits import Meter

WIDE, CLOSED = 1e12, 0.001


def meter(rate: float) -> Meter:
    made = Meter()
    made.set_rates(rate, rate, 0.0)
    made.take(1e3 if rate == CLOSED else 0, 0)
    return made


def best_ns(rate: float | None, messages: int, total: int) -> float:
    best = float("inf")
    for _ in range(5):
        gate = HotGate()
        topic, application, gate.own = (None if rate is None else meter(rate) for _ in range(3))
        started = time.process_time_ns()
        gate_rounds(gate, topic, application, messages, total // messages)
        best = min(best, time.process_time_ns() - started)
    return best / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=2_000_000, help="messages a run")
    arguments = parser.parse_args()
    for name, rate in (("no limits", None), ("all limits, passing", WIDE), ("all limits, refusing", CLOSED)):
        for messages in (1, 50):
            ns = best_ns(rate, messages, arguments.messages)
            print(f"limits: {name}, {messages} messages a call: {ns:.1f} ns a message")


if __name__ == "__main__":
    main()
