"""CPU of putting a message into an append, and memory of a known topic.

Workload: messages of 160 encoded bytes without key, each to the next topic, in appends of 1, 16 and 1,000 messages; 16
topics, whose data is in the CPU's caches, and 200,000, whose data is not. Native, in a C loop, as the producer proxy
does it. Excluded: sockets, laying the append out, everything before and after the lane. Topics are created before the
clock starts; the best of five runs counts.

    python -m bench.append [--messages 2000000]
"""

import argparse
import time

from bench._adding import add_rounds
from engine.client.append import Destination, Destinations, Lane
from engine.client.durability import LANES

MESSAGE = b"x" * 160


def rss_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def best_ns(destinations: list, a_round: int, messages: int, repeats: int = 5) -> float:
    lane, best = Lane(LANES[0]), float("inf")
    for _ in range(repeats):
        started = time.process_time_ns()
        add_rounds(lane, destinations, MESSAGE, a_round, messages // a_round)
        best = min(best, time.process_time_ns() - started)
    return best / messages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=2_000_000, help="messages per run")
    arguments = parser.parse_args()
    for topics in (16, 200_000):
        before = rss_bytes()
        known = Destinations(topics)
        for number in range(topics):
            known.put(Destination(b"metrics.host.%08d" % number, number + 1, 8, 1, 4 << 20))
        each = (rss_bytes() - before) / topics
        destinations = [known.get(b"metrics.host.%08d" % number) for number in range(topics)]
        for a_round in (1, 16, 1_000):
            ns = best_ns(destinations, a_round, arguments.messages)
            print(f"add: {topics} topics, {a_round} messages an append: {ns:.1f} ns per message")
    print(f"destination: {each:.0f} B each, with its name of 21 characters and its place in the table")


if __name__ == "__main__":
    main()
