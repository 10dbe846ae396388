"""CPU of many groups that take different parts of one topic, by the number of groups.

Workload: a real log in page cache; one queue with messages as bench.filters makes them, in batches of 50; N groups,
each with the filter `messageType == 'type-i' && amount >= 100`. After each 500 messages every group pulls until nothing
is left for it. Two ways:

    shared  the first group to read a stretch asks the index for all (engine/delivery/shared_filters.py)
    alone   every group reads and filters everything

The figure is CPU time of all pulls per message of the topic. Excluded: appends, acknowledgements, the link; the clock
of the filter budget is advanced between pulls, so no pull waits.

    python -m bench.filtered_groups [--groups 1,10,100,1000] [--messages 4000]
"""

import argparse
import random
import tempfile
import time

from bench.filters import message
from engine.config import LogConfig
from engine.delivery.delivery import Delivery
from engine.delivery.policy import Defaults, GroupPolicy
from engine.delivery.pull import PullRequest
from engine.delivery.receipt import receipt_key
from engine.delivery.settings import DeliverySettings
from engine.env.real import RealEnv
from engine.log import open_log
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record

BATCH, STEP = 50, 500
TICK_MS = 20


class Filtered(Defaults):
    """Policies under which group i takes messages of type i."""

    generation = 1

    def of(self, group: str) -> GroupPolicy:
        return GroupPolicy(filters={"": f"messageType == 'type-{group}' && amount >= 100"})


def run(groups: int, messages: int, *, shared: bool) -> tuple[float, int]:
    """Microseconds of CPU per message, and how many messages were dispatched."""
    seed, env = random.Random(groups), RealEnv()
    records = [pack_record(message(groups, seed), seed.randbytes(16)) for _ in range(messages)]
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(env, directory, LogConfig())
        try:
            (topic,) = log.create_topics([("shop.orders", 1)])
            settings = DeliverySettings(shared_filters_min=4 if shared else groups + 1)
            delivery = Delivery(log, receipt_key(log, env.random_bytes), env.now_ms, settings, policies=Filtered())
            now_ms, spent = 0, 0.0
            for first in range(0, messages, STEP):
                for at in range(first, first + STEP, BATCH):
                    log.append(
                        bytearray(pack_batch(KIND_MESSAGES, topic.id, 0, records[at : at + BATCH])), 1, env.now_ms()
                    )
                began = time.process_time()
                delivery.on_woken(log.take_woken(), now_ms)
                for group in range(groups):
                    now_ms += TICK_MS
                    pull_all(delivery, str(group), now_ms)
                # The first step reads and compiles the groups' filters.
                spent += time.process_time() - began if first else 0.0
            return spent / (messages - STEP) * 1e6, delivery.counts.deliveries
        finally:
            log.close()


def pull_all(delivery: Delivery, group: str, now_ms: int) -> None:
    request = PullRequest(group, [("shop.orders", 1)], b"orders", 1_000, 15 << 20, 0, 3_600_000, 0, [])
    delivery.pull(request, now_ms, lambda pull: None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", default="1,10,100,1000", metavar="N,N,…")
    parser.add_argument("--messages", type=int, default=4_000)
    arguments = parser.parse_args()
    print("µs of CPU per message of the topic, all groups together")
    print(f"{'groups':>8} {'shared':>10} {'alone':>10} {'gain':>7}")
    for groups in map(int, arguments.groups.split(",")):
        (shared_us, given), (alone_us, same) = (
            run(groups, arguments.messages, shared=shared) for shared in (True, False)
        )
        if given != same:
            raise AssertionError(f"{given} messages dispatched together, {same} alone")
        print(f"{groups:8} {shared_us:10.2f} {alone_us:10.2f} {alone_us / shared_us:6.1f}x", flush=True)


if __name__ == "__main__":
    main()
