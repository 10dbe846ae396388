"""CPU per message of a read and a write without Spark, by process: `python -m bench.spark.parts --messages 100000`.

Question: what does a message cost in each process on the way between the engine and an Arrow batch? One task's reader
and writer run in this process against a fresh `penstock up`. Bodies have 200 bytes. Topic `ids` gets messages with ids
of their own, as Spark's sink sends them; topic `plain` gets messages whose ids the proxy assigns. CPU is of whole
processes, so it depends less on what else the machine does than rates do.
"""

import argparse
import json
import sys
import time
from array import array
from collections.abc import Callable
from functools import partial

from bench.spark.fill import columns_of
from bench.spark.processes import cpu_s
from bench.spark.sides import penstock_side
from pipeline.options import read_options, write_options
from pipeline.sink.columns import MessageColumns
from pipeline.sink.sends import BatchSends
from pipeline.source.ranges import OffsetRange
from pipeline.source.read_range import read_range

TOPICS = ("ids", "plain")
COLUMNS = ("topic", "queue", "offset", "key", "body", "stored_at")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark.parts", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    messages = parser.parse_args().messages
    with penstock_side(TOPICS, queues=1) as side:
        for topic in TOPICS:
            columns = columns_of(topic, messages, has_ids=topic == "ids")
            report(topic, "write", messages, side.pids, partial(send, side.write, columns, messages))
            options = side.reading(topic)
            report(topic, "read", messages, side.pids, partial(read, options, topic, messages))
    return 0


def report(topic: str, step: str, messages: int, pids: dict[str, int], work: Callable[[], None]) -> None:
    before, began_s = cpu_by_process(pids), time.monotonic()
    work()
    rate = messages / (time.monotonic() - began_s)
    spent = {name: round((after - before[name]) / messages * 1e6, 2) for name, after in cpu_by_process(pids).items()}
    print(json.dumps({"topic": topic, "step": step, "messages_per_s": round(rate), "cpu_us_per_message": spent}))


def cpu_by_process(pids: dict[str, int]) -> dict[str, float]:
    return {**{name: cpu_s([pid]) for name, pid in pids.items()}, "task": time.process_time()}


def send(options: dict[str, str], columns: MessageColumns, messages: int) -> None:
    with BatchSends(write_options(options)) as sends:
        counts, refused = sends.send(columns, array("I", range(messages)))
    assert counts.stored == messages and not refused


def read(options: dict[str, str], topic: str, messages: int) -> None:
    batches = read_range(read_options(options), COLUMNS, OffsetRange(topic, 0, 0, messages))
    assert sum(map(len, batches)) == messages


if __name__ == "__main__":
    sys.exit(main())
