"""CPU of rate limits, and of all checks, per message on the producer proxy's hot path.

Workload: calls of 1 and of 50 messages through admission, in a C loop: without any limit; with limits of the topic, the
application and the proxy, messages and bytes each; and over them, so that every call is refused. Then all checks of a
call together: credential, grants (the last of ten), destination, size, rules, limits, the queue's bound; each message
of another of 1,000 topics than the one before. Excluded: the walk, the append, the answer. The best of five runs
counts.

    python -m bench.limits [--messages 2000000]
"""

import argparse
import time

from producer_proxy.hot._admission import HotAdmission
from producer_proxy.hot._admitted import AdmittedCredential

from bench._limiting import all_rounds, gate_rounds
from common.callers import Origin
from common.limits import Meter, QueueLimit
from engine.client.append import Destination, Destinations

WIDE, CLOSED = 1e12, 0.001


def meter(rate: float) -> Meter:
    made = Meter()
    made.set_rates(rate, rate, 0.0)
    made.take(1e3 if rate == CLOSED else 0, 0)
    return made


def best_ns(rate: float | None, messages: int, total: int) -> float:
    best = float("inf")
    for _ in range(5):
        gate = HotAdmission()
        topic, application, gate.own = (None if rate is None else meter(rate) for _ in range(3))
        started = time.process_time_ns()
        gate_rounds(gate, topic, application, messages, total // messages)
        best = min(best, time.process_time_ns() - started)
    return best / total


def all_checks_best_ns(rate: float | None, messages: int, total: int) -> float:
    names = [b"bench-%d" % number for number in range(1000)]
    best = float("inf")
    for _ in range(5):
        gate = HotAdmission()
        application, gate.own = (None if rate is None else meter(rate) for _ in range(2))
        patterns = [*(f"other-{number}*" for number in range(9)), "bench-*"]
        admitted = AdmittedCredential(b"c" * 80, "app", 1e12, patterns, application, Origin(), bytes(32))
        known = Destinations(len(names) + 1)
        for number, name in enumerate(names):
            made = Destination(name, number + 1, 8, 1, 4 << 20, 0)
            made.meter = None if rate is None else meter(rate)
            known.put(made)
        started = time.process_time_ns()
        passed = all_rounds(gate, admitted, known, QueueLimit(), b"c" * 80, names, messages, total // messages)
        best = min(best, time.process_time_ns() - started)
        assert passed == total // messages
    return best / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=2_000_000, help="messages per run")
    arguments = parser.parse_args()
    for name, rate in (("no limits", None), ("all limits, passing", WIDE), ("all limits, refusing", CLOSED)):
        for messages in (1, 50):
            ns = best_ns(rate, messages, arguments.messages)
            print(f"limits: {name}, {messages} messages per call: {ns:.1f} ns per message")
    for name, rate in (("no limits", None), ("all limits", WIDE)):
        for messages in (1, 50):
            ns = all_checks_best_ns(rate, messages, arguments.messages)
            print(f"all checks: {name}, {messages} messages per call: {ns:.1f} ns per message")


if __name__ == "__main__":
    main()
