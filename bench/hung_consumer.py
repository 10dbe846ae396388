"""Messages delayed by one hung consumer of three: with leases, and with consumers that own queues.

Workload: `penstock up`; one topic of 12 queues gets 1,000 messages/s; three consumer processes take up to 32 at a time
and work 5 ms on them. After 5 s one of the three is stopped (SIGSTOP: its connections stay open, nothing else of it
works). Two runs:

    pop     the consumers are one group; a delivery is leased for 5 s
    owners  each consumer owns four queues, as in systems that assign queues; a hung consumer is not a
            failed one, so its queues are not reassigned

The figures are the lateness of each message, and the number that was never processed. Nothing is excluded. `--plot
FILE` draws the age of the oldest unprocessed message over both runs; it needs the extra `plots`.

    python -m bench.hung_consumer [--seconds 20] [--plot docs/runs/hung-consumer.svg]
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import instance
from bench.errors import BenchError
from bench.generator import LoadTarget
from bench.report import machine
from bench.settings import LoadSettings
from bench.work_consumer import ConsumerTask, client, credential
from common.contract import Code, Credential, Message, Producer, SendRequest

CONSUMERS, QUEUES, BATCH, WORK_S = 3, 12, 32, 0.005
STEP_S = 0.01
GRID_S = 0.05


@dataclass
class HungRun:
    """One run; times in seconds since its first message. `done_s` has only processed messages."""

    model: str
    lease_s: float
    hung_s: float
    end_s: float = 0.0
    sent_s: list[float] = field(default_factory=list)
    done_s: dict[int, float] = field(default_factory=dict)

    @property
    def undone(self) -> int:
        return len(self.sent_s) - len(self.done_s)

    def delays_s(self) -> list[float]:
        """Delays of the processed messages, shortest first."""
        return sorted(at - self.sent_s[number] for number, at in self.done_s.items())

    def late(self, delay_s: float) -> int:
        """Number of messages processed later than `delay_s`, or never."""
        return sum(each > delay_s for each in self.delays_s()) + self.undone

    def oldest_s(self) -> tuple[list[float], list[float]]:
        """Times, and at each the age of the oldest sent and unprocessed message."""
        ends = [self.done_s.get(number, float("inf")) for number in range(len(self.sent_s))]
        moments = [step * GRID_S for step in range(int(self.end_s / GRID_S))]
        ages = []
        for moment in moments:
            open_ones = (self.sent_s[at] for at in range(bisect_right(self.sent_s, moment)) if ends[at] > moment)
            ages.append(moment - next(open_ones, moment))
        return moments, ages


def run(
    target: LoadTarget, topic: str, model: str, *, seconds: float, hang_s: float, lease_s: float, rate: int = 1_000
) -> HungRun:
    """Send for `seconds` and stop a consumer at `hang_s`; then allow one lease's duration for the rest."""
    course = HungRun(model, lease_s, hang_s)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, ExitStack() as ending:
        files = [Path(folder) / f"consumer-{number}" for number in range(CONSUMERS)]
        consumers = [_start(target, topic, model, lease_s, number, file) for number, file in enumerate(files)]
        for consumer in consumers:
            ending.callback(consumer.wait)
            ending.callback(consumer.kill)
        _warm_up(target, topic, files)
        sender, who = client(Producer, target.producer), credential(target.app, target.key_id, target.secret)
        began_s = time.monotonic()
        hung = False
        while (now_s := time.monotonic() - began_s) < seconds:
            if now_s >= hang_s and not hung:
                consumers[0].send_signal(signal.SIGSTOP)
                hung = True
            due = range(len(course.sent_s), int(now_s * rate))
            if due:
                course.sent_s += [time.monotonic() - began_s] * len(due)
                _send(sender, who, [Message(topic=topic, body=b"%d" % number) for number in due])
            time.sleep(STEP_S)
        time.sleep(lease_s)
        if any(consumer.poll() is not None for consumer in consumers):
            raise BenchError("a consumer ended by itself")
        course.end_s = time.monotonic() - began_s
        for file in files:
            for number, at_s in (line.split() for line in file.read_text().splitlines()):
                since_s = float(at_s) - began_s
                if int(number) >= 0:
                    course.done_s[int(number)] = min(since_s, course.done_s.get(int(number), since_s))
    return course


def _start(target: LoadTarget, topic: str, model: str, lease_s: float, number: int, file: Path) -> subprocess.Popen:
    queues = list(range(number, QUEUES, CONSUMERS)) if model == "owners" else []
    work = ConsumerTask(
        target.consumer, target.app, target.key_id, target.secret, topic, "bench-readers", int(lease_s * 1000), BATCH,
        WORK_S, str(file), queues,
    )  # fmt: skip
    return subprocess.Popen([sys.executable, "-P", "-m", "bench.work_consumer", json.dumps(work._asdict())])


def _warm_up(target: LoadTarget, topic: str, files: list[Path]) -> None:
    """Send messages numbered -1 until every consumer has processed some."""
    sender, who = client(Producer, target.producer), credential(target.app, target.key_id, target.secret)
    deadline_s = time.monotonic() + 20
    while not all(file.exists() and file.stat().st_size for file in files):
        if time.monotonic() > deadline_s:
            raise BenchError("not every consumer came to work")
        _send(sender, who, [Message(topic=topic, body=b"-1")] * BATCH)
        time.sleep(STEP_S)


def _send(sender: Any, who: Credential, messages: list) -> None:
    results = sender.send(SendRequest(credential=who, messages=messages)).results
    if {result.code for result in results} != {Code.OK}:
        raise BenchError(f"a send was refused: {results[0]}")


def both(seconds: float, hang_s: float, lease_s: float) -> list[HungRun]:
    """Do both runs on one new instance."""
    courses = []
    with instance.own() as own:
        for model in ("pop", "owners"):
            topic = f"hung-{model}"
            with own.prepared(LoadSettings(topics=1, topic_pattern=topic, queues=QUEUES)) as target:
                courses.append(run(target, topic, model, seconds=seconds, hang_s=hang_s, lease_s=lease_s))
    return courses


def line(course: HungRun) -> str:
    delays = course.delays_s()
    return (
        f"{course.model:7} {len(course.sent_s):,} messages, {course.undone:,} not done in the end; "
        f"p50 {delays[len(delays) // 2]:.3f} s, p99 {delays[int(len(delays) * 0.99)]:.3f} s, most {delays[-1]:.3f} s; "
        f"{course.late(1.0):,} later than 1 s; lease {course.lease_s:g} s"
    )


def draw(courses: list[HungRun], path: Path) -> None:
    """Draw the age of the oldest unprocessed message over both runs."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "penstock"  # the same run, the same file
    from matplotlib import pyplot

    looks = {"pop": ("#1b7f5c", "leases (Penstock)"), "owners": ("#9aa5b1", "queues owned by consumers")}
    figure, axis = pyplot.subplots(figsize=(9, 4), layout="constrained")
    for course in courses:
        colour, name = looks[course.model]
        axis.plot(
            *course.oldest_s(), color=colour, label=f"{name}: {course.undone:,} of {len(course.sent_s):,} never done"
        )
    axis.axhline(courses[0].lease_s, color="#c2571a", linewidth=0.8, linestyle="--")
    axis.annotate("lease", (0, courses[0].lease_s), color="#c2571a", fontsize=8, va="bottom")
    axis.axvline(courses[0].hung_s, color="#666", linewidth=0.8, linestyle=":")
    axis.annotate("one of three consumers hangs", (courses[0].hung_s, axis.get_ylim()[1]), fontsize=8, va="top")
    axis.set_xlabel("seconds")
    axis.set_title("age of the oldest message that is not done, s", fontsize=10)
    axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0, 0.9))
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--lease-s", type=float, default=5.0)
    parser.add_argument("--plot", type=Path, help="where to write the picture")
    arguments = parser.parse_args()
    try:
        courses = both(arguments.seconds, 5.0, arguments.lease_s)
    except BenchError as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return 1
    print(machine())
    for course in courses:
        print(line(course))
    if arguments.plot:
        draw(courses, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
