"""Compares Spark's data source `penstock` with its Kafka source and sink: `python -m bench.spark --messages 1000000`.

Question: how many messages per second does Spark write, read in a batch and read in a stream, on this machine with the
system beside it, and how many does it archive? Bodies have 200 bytes, and four queues or partitions. Both systems run
beside one session of Spark; each step is done on one side and then on the other, in a new topic per round, so that what
else the machine does meets both. Excluded: the start of Spark and of the systems, and a first small run of each kind.
Reads go to Spark's `noop` sink with the same six columns. The sink of Penstock gives each message an id, so a repeated
batch is stored once; Kafka's sink stores it again. `ordinary` is a topic whose messages came without ids of their own,
1000 per call, as producers send them; the others are those that Spark has written.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from bench.outcome import commit
from bench.peers.build import spark_kafka_jars
from bench.report import machine
from bench.spark.fill import fill
from bench.spark.memory import PeakMemory
from bench.spark.processes import cpu_by_role
from bench.spark.sides import SparkSide, kafka_side, penstock_side
from bench.spark.steps import COMPARED, Step, archive, read, stream
from bench.spark.targets import PEAK_PSS_MIB, TARGETS
from pipeline.session import JOB_SETTINGS, local_session

WARM, ORDINARY = "warm", "ordinary"
WARM_MESSAGES = 50_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("penstock", "kafka"), help="Measure one side.")
    parser.add_argument("--save", type=Path, help="Write all figures to this file, for bench.spark.plot.")
    options = parser.parse_args()
    rounds = [f"round-{number}" for number in range(options.rounds)]
    with ExitStack() as stack:
        sides = []
        if options.only != "kafka":
            sides.append(stack.enter_context(penstock_side([WARM, ORDINARY, *rounds])))
        if options.only != "penstock":
            sides.append(stack.enter_context(kafka_side()))
        jars = "" if options.only == "penstock" else ",".join(map(str, spark_kafka_jars()))
        spark = local_session("bench", "local[2]", {**JOB_SETTINGS, **({"spark.jars": jars} if jars else {})})
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        runs = measure(spark, sides, rounds, options.messages)
    result = {"machine": machine(), "commit": commit(), "messages": options.messages, "runs": runs}
    if options.save:
        options.save.write_text(json.dumps(result, indent=1))
    show(runs)
    return 0


def measure(spark: SparkSession, sides: Sequence[SparkSide], rounds: Sequence[str], messages: int) -> list[dict]:
    for side in sides:
        for step in (*COMPARED.values(), *([archive] if side.form == "penstock" else [])):
            step(spark, side, WARM, WARM_MESSAGES)
        if side.form == "penstock":
            fill(side, ORDINARY, messages)
    found = []
    for topic in rounds:
        for name, step in COMPARED.items():
            found += [measured(spark, side, name, step, topic, messages) for side in sides]
        for side in sides:
            if side.form == "penstock":
                found.append(measured(spark, side, "archive", archive, topic, messages))
                for name, step in (("batch read", read), ("stream", stream), ("archive", archive)):
                    found.append(measured(spark, side, f"{name}, ordinary", step, ORDINARY, messages))
    return found


def measured(spark: SparkSession, side: SparkSide, name: str, step: Step, topic: str, messages: int) -> dict[str, Any]:
    before, load, began_s = cpu_by_role(side.pids), os.getloadavg()[0], time.monotonic()
    with PeakMemory() as memory:
        step(spark, side, topic, messages)
    seconds = time.monotonic() - began_s
    cpu_us = {
        role: round((after - before.get(role, 0)) / messages * 1e6, 2) for role, after in cpu_by_role(side.pids).items()
    }
    found = {
        "side": side.form, "step": name, "messages_per_s": round(messages / seconds), "cpu_us": cpu_us,
        "cores_used": round(sum(cpu_us.values()) * messages / 1e6 / seconds, 2),
        "peak_pss_mib": memory.peak_bytes >> 20, "load_before": round(load, 1),
    }  # fmt: skip
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def show(runs: Sequence[dict[str, Any]]) -> None:
    """Medians per step, and the ratio to Kafka's."""
    for name in dict.fromkeys(run["step"] for run in runs):
        rates = {
            side: median(each)
            for side in ("penstock", "kafka")
            if (each := [run["messages_per_s"] for run in runs if (run["side"], run["step"]) == (side, name)])
        }
        told = ", ".join(f"{side} {rate:,.0f}" for side, rate in rates.items())
        ratio = f", ratio {rates['penstock'] / rates['kafka']:.2f}" if len(rates) == 2 else ""
        target = f", target {TARGETS[name]:,}" if name in TARGETS else ""
        print(f"{name}: {told} messages/s{ratio}{target}")
    print(f"peak PSS of Spark: {max(run['peak_pss_mib'] for run in runs)} MiB, target {PEAK_PSS_MIB}")


if __name__ == "__main__":
    sys.exit(main())
