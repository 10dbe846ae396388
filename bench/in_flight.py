"""Memory per message that was dispatched and is not acknowledged.

Workload: a real log with 1,000,000 messages of 128 bytes in 128 queues; one group pulls them all and acknowledges none,
in a process of its own for each way:

    leases of 32    consumers that pull 32 at a time
    single leases   one lease per message, the maximum
    keys            in order by key, 32 at a time, one key per message

The figure is the growth of the process from the first pull to the last, per message and in all. Excluded: the log, the
proxies.

    python -m bench.in_flight [--messages 1000000]
"""

import argparse
import multiprocessing
import tempfile
from pathlib import Path

from bench.delivery import BODY, field
from bench.servers import rss_bytes
from engine.config import LogConfig
from engine.delivery.delivery import Delivery
from engine.delivery.policy import KEY, NONE, Defaults, GroupPolicy
from engine.delivery.pull import PullRequest
from engine.delivery.receipt import receipt_key
from engine.env.real import RealEnv
from engine.link.integers import U16
from engine.log import open_log
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record

QUEUES, BATCH = 128, 100
WAYS = {"leases of 32": (32, NONE), "single leases": (1, NONE), "keys": (32, KEY)}
BAR_MB = 200


class Ordered(Defaults):
    """Policy with the same order for every group."""

    generation = 1

    def __init__(self, order: int) -> None:
        self._policy = GroupPolicy(order=order)

    def of(self, group: str) -> GroupPolicy:
        return self._policy


def growth_bytes(way: str, messages: int) -> int:
    most, order = WAYS[way]
    env = RealEnv()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        log = open_log(env, directory, LogConfig())
        try:
            (topic,) = log.create_topics([("t", QUEUES)])
            for first in range(0, messages, BATCH):
                batch = pack_batch(
                    KIND_MESSAGES,
                    topic.id,
                    first // BATCH % QUEUES,
                    [_record(at) for at in range(first, first + BATCH)],
                )
                log.append(bytearray(batch), 1, env.now_ms())
            delivery = Delivery(log, receipt_key(log, env.random_bytes), env.now_ms, policies=Ordered(order))
            request = PullRequest("g", [("t", QUEUES)], U16.pack(1) + b"t", most, 1 << 20, 0, 3_600_000, 0, [])
            before, given = rss_bytes(Path("/proc/self")), 0
            while given < messages:
                counted = delivery.counts.deliveries
                delivery.pull(request, 0, lambda pull: None)
                given += delivery.counts.deliveries - counted
            return rss_bytes(Path("/proc/self")) - before
        finally:
            log.close()


def _record(number: int) -> bytes:
    return pack_record(field(1, b"t") + field(2, bytes(BODY)) + field(3, b"key-%d" % number) + b"\0")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    messages = parser.parse_args().messages
    for way in WAYS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            grown = pool.apply(growth_bytes, (way, messages))
        print(
            f"{way:14} {grown / messages:6.1f} B per message, {grown / 1e6:6.1f} MB for {messages:,} (bar {BAR_MB} MB)",
            flush=True,
        )


if __name__ == "__main__":
    main()
