"""CPU of the parts of a dual write per message, in one process without sockets: `python -m bench.dual_parts`.

Question: what do intent, marks and copies cost at 1, 50 and 500 messages per batch? Both sides answer at once and keep
nothing, so that what is counted is the dual write's own work. Messages of 128 bytes, keys of 64 values. Excluded: sockets,
the send path, and the syncs' threads (their time is in the process' CPU where they run).
"""

import argparse
import cProfile
import pstats
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import gevent

from common.config import ConfigView
from common.config.definitions import TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Code, Message, encode_struct
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.journaling import Journaling
from producer_proxy.targets.base import MessageSlice, SendTarget
from producer_proxy.targets.kafka_homes import KafkaHomes
from producer_proxy.targets.topics import Targets, Topics

BATCHES = (1, 50, 500)


class NullDestination(NamedTuple):
    name: str
    queues: int
    durability: int = 1
    grade: int = 1


class NullTarget(SendTarget):
    """Answers OK at once and keeps nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def resolve(self, definitions: Any, generation: int, asker: Any) -> dict[str, NullDestination]:
        return {name: NullDestination(name, 8) for name in definitions}

    def served_as(self, durability: int) -> int:
        return 1

    def admits(self, durability: int, destination: Any, key: Any, taken: int, asked: int) -> bool:
        return True

    def submit(self, durability: int, messages: Any, on_outcomes: Any) -> bool:
        on_outcomes([(int(Code.OK), 3, 7)] * len(messages))
        return True

    def close(self) -> None:
        pass


class NullHomes(KafkaHomes):
    """One null target for every cluster."""

    def of(self, cluster: str, waits: bool = True) -> Any:
        return _secondary


_secondary = NullTarget("kafka:main")


def us_per_message(topics: Topics, topic: str, size: int, count: int) -> float:
    """CPU per message of `count` messages in batches of this size."""
    (route,) = topics.find([topic]).values()
    encoded = encode_struct(Message(topic=topic, key="k", body=b"x" * 128))
    slices = [MessageSlice(route.destination, b"k%d" % (n % 64), b"i" * 16, encoded) for n in range(size)]
    started = time.process_time()
    for _ in range(count // size):
        route.target.submit(1, slices, lambda outcomes: None)
        gevent.sleep(0)
    gevent.sleep(1.2)  # marks and syncs
    return (time.process_time() - started) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.dual_parts", description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--profile", action="store_true", help="Show the functions that take the most time.")
    options = parser.parse_args()
    store = MemoryConfigStore()
    store.put("topic", "one", TopicDefinition("one").to_value(), 0)
    store.put("topic", "two", TopicDefinition("two", secondary="kafka:main").to_value(), 0)
    view = ConfigView(store)
    with tempfile.TemporaryDirectory() as folder:

        def now_ms() -> int:
            return int(time.time() * 1000)

        journaling = Journaling(RepairJournal(Path(folder), now_ms), now_ms).over(view)
        targets = Targets(NullTarget("engine"), kafka=NullHomes(), duals=journaling)
        topics = Topics(view, targets)
        journaling.start(targets)
        for size in BATCHES:
            alone, both = (us_per_message(topics, topic, size, options.messages) for topic in ("one", "two"))
            print(f"batch={size:4} alone {alone:6.2f} us/message  dual {both:6.2f} us/message")
        if options.profile:
            profile = cProfile.Profile()
            profile.runcall(us_per_message, topics, "two", 50, options.messages)
            pstats.Stats(profile).sort_stats("tottime").print_stats(14)
        journaling.stop()


if __name__ == "__main__":
    main()
