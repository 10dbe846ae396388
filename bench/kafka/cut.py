"""Plots of a cut under load: `python -m bench.kafka.cut --out FOLDER`.

Question: what do senders, Kafka and the engine see while a topic moves? A plan with the recipe mirror over one topic of 4
partitions: start, verify, cut, with senders at a fixed rate all the time. Each tenth of a second: answers by
code, records in Kafka (a reader that sees what is committed counts them), messages in the engine (by the bounds of its
queues). SVG files: rates, messages that a side lacks (Kafka: those of after the cut, until a copy back begins with `migrate
soak`), answers that are not OK, and the commands. Senders do not retry, so that a fence is visible.
"""

import argparse
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from bench.cases import say
from bench.fallback.load import STORED, PacedLoad
from bench.kafka.desk import CLUSTER, KafkaDesk, create_on, kafka_desk
from bench.settings import LoadSettings
from common.contract import Code
from common.kafka.base import ReaderOptions
from common.kafka.drivers import open_driver
from common.kafka.records import Partition
from common.names import split_stored_name
from engine.client.admin import AdminClient
from engine.client.lookup import bounds
from migration.drawing import Span, lines, time_line

TOPIC, PARTITIONS, THREADS = "orders-0", 4, 8
SAMPLE_S, AROUND_S, SMOOTH = 0.1, 5.0, 10
PLAN_NAME = "shown"
PLAN = f"name: {PLAN_NAME}\nrecipe: mirror\ncluster: {CLUSTER}\ntopics: [{TOPIC}]\nlimits: {{fence_s: 60, soak_hours: 0}}\n"
STEPS = ("start", "verify", "cut")


class SideCounts(NamedTuple):
    """Counts so far at a monotonic time."""

    at_s: float
    kafka: int
    engine: int


class CutWatch:
    """Counts what both sides have, in a thread, until `stop()`."""

    def __init__(self, desk: KafkaDesk) -> None:
        self.samples: list[SideCounts] = []
        self._desk, self._stopping = desk, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        partitions = [Partition(TOPIC, number) for number in range(PARTITIONS)]
        in_kafka, due = 0, time.monotonic()
        place, key = self._desk.instance.facts["engine"], (self._desk.data / "admin.key").read_bytes()
        with (
            closing(open_driver().reader(self._desk.connection, ReaderOptions())) as reader,
            AdminClient((place["host"], place["port"]), key) as link,
        ):
            reader.assign(dict.fromkeys(partitions, 0))
            while not self._stopping.is_set():
                due += SAMPLE_S
                while (left_s := due - time.monotonic()) > 0:
                    in_kafka += sum(len(each.offsets) for each in reader.poll(left_s))
                self.samples.append(SideCounts(time.monotonic(), in_kafka, _in_engine(link)))


def _in_engine(link: AdminClient) -> int:
    """Messages of the topic; 0 before its first one."""
    found = [each["name"] for each in link.ask("topics", prefix=TOPIC, limit=10)["topics"]]
    names = [name for name in found if split_stored_name(name)[0] == TOPIC]
    return sum(end for name in names for _, end in bounds(link, name).values())


def measure(rate: int) -> dict[str, str]:
    """Run the plan; the SVG texts by name."""
    spans: list[tuple[str, float, float]] = []
    with kafka_desk() as desk:
        with closing(open_driver().admin(desk.connection)) as admin:
            create_on(admin, {TOPIC: PARTITIONS})
        desk.create({TOPIC: {"home": f"kafka:{CLUSTER}", "queues": PARTITIONS, "id_window_ms": 0}}, on_kafka=False)
        settings = LoadSettings(topics=1, topic_pattern="orders-%d", durability="default")
        plan = desk.data / "plan.yaml"
        plan.write_text(PLAN)
        with desk.instance.prepared(settings) as target:
            active = threading.Event()
            active.set()
            watch = CutWatch(desk)
            load = PacedLoad(target, TOPIC, rate, THREADS, active)
            desk.command("migrate", "plan", str(plan), "--accept", "lone-replica")
            for step in STEPS:
                time.sleep(AROUND_S)
                began = time.monotonic()
                desk.command("migrate", step, PLAN_NAME)
                spans.append((step, began, time.monotonic()))
                say(f"cut: {step}: {spans[-1][2] - began:.1f} s")
            time.sleep(2 * AROUND_S)
            load.stop()
            time.sleep(AROUND_S)
            watch.stop()
    return drawn(watch.samples, load, spans)


def drawn(samples: list[SideCounts], load: PacedLoad, spans: list[tuple[str, float, float]]) -> dict[str, str]:
    """The plots, over seconds since the first sample."""
    began = samples[0].at_s
    times = [each.at_s - began for each in samples]
    calls = sorted((each.planned_s + each.took_s, each.code) for each in load.calls)
    stored = _counts([at for at, code in calls if code in STORED], samples)
    fenced = _counts([at for at, code in calls if code == Code.FENCED], samples)
    others = _counts([at for at, code in calls if code not in STORED and code != Code.FENCED], samples)
    kafka, engine = [float(each.kafka) for each in samples], [float(each.engine) for each in samples]
    lacks = {
        f"{name} lacks": [max(0.0, ok - there) for ok, there in zip(stored, counts, strict=True)]
        for name, counts in (("Kafka", kafka), ("engine", engine))
    }
    rates = {"answered OK": stored, "into Kafka": kafka, "into the engine": engine}
    errors = {"FENCED": fenced, "other codes": others}
    bars = [Span(name, int(1000 * (first - began)), int(1000 * (last - began))) for name, first, last in spans]
    return {
        "rates": lines("Senders, Kafka and the engine", "messages per second", times, _rates(rates, times)),
        "lag": lines("Messages that were answered OK and that a side lacks", "messages", times, lacks),
        "errors": lines("Answers that are not OK", "per second", times, _rates(errors, times)),
        "steps": time_line("Commands of the plan", bars),
    }


def _counts(at_s: list[float], samples: list[SideCounts]) -> list[float]:
    """For each sample, the number of these ascending times that lie before it."""
    counts, number = [], 0
    for sample in samples:
        while number < len(at_s) and at_s[number] <= sample.at_s:
            number += 1
        counts.append(float(number))
    return counts


def _rates(counts: dict[str, list[float]], times: list[float]) -> dict[str, list[float]]:
    """Growth per second over the last SMOOTH samples."""
    return {
        name: [
            (values[at] - values[max(0, at - SMOOTH)]) / max(SAMPLE_S, times[at] - times[max(0, at - SMOOTH)])
            for at in range(len(values))
        ]
        for name, values in counts.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka.cut", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=100, help="Messages per second.")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="Folder for the SVG files.")
    options = parser.parse_args()
    for name, text in measure(options.rate).items():
        (options.out / f"cut-{name}.svg").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
