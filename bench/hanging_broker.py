"""Effect of one hanging broker among three on the senders to the others.

Workload: `penstock up --groups 3`; one topic of 12 queues, in memory; callers with one connection and one call of one
message of 128 B at a time, in three streams: messages without a key (12 callers), with keys of the two other groups
(8), and with keys of the group that hangs (2, which give up after 0.2 s). Each caller calls every 25 ms, or as soon as
its last call has ended. Then the second group's engine is stopped (SIGSTOP: its connections stay open, nothing else of
it works), and later continued (SIGCONT).

The figures are the latency of calls in three spans: before, from SIGSTOP to SIGCONT, and after; and the times at which
the producer proxy's breaker opened and closed, by its log. Nothing is excluded: calls that were in flight to the broker
when it was stopped count. A waiting caller makes no other call meanwhile. `--plot FILE` draws every call; it needs the
extra `plots`.

    python -m bench.hanging_broker [--seconds 5] [--plot docs/runs/hanging-broker.svg]
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count, cycle
from pathlib import Path
from typing import Any

from bench import instance
from bench.errors import BenchError
from bench.generator import LoadTarget
from bench.instance import BenchInstance
from bench.report import machine
from bench.settings import LoadSettings
from bench.work_consumer import client, credential
from common.contract import Code, Durability, Message, Producer, SendRequest
from common.keyhash import queue_of
from common.placement import Placement, topic_hash

GROUPS, QUEUES, TOPIC, GAP_S = 3, 12, "one-of-three", 0.025
HANGING = "group-2"
STREAMS = {"unordered": 12, "keys of the others": 8, "keys of the hanging one": 2}
GIVE_UP_MS = 200
SPANS = ("before", "while it hangs", "after")
RECOVERY_S_MAX = 15.0
_BODY = b"x" * 128


@dataclass
class Stream:
    """Calls of one kind of message: (start in seconds since the run's beginning, duration in seconds, code)."""

    name: str
    calls: list[tuple[float, float, int]] = field(default_factory=list)

    def took_s(self, since_s: float, until_s: float) -> list[float]:
        """Durations of the calls that began in this span, in seconds, shortest first."""
        return sorted(took for at, took, _ in self.calls if since_s <= at < until_s)

    def codes(self, since_s: float, until_s: float) -> Counter[int]:
        return Counter(code for at, _, code in self.calls if since_s <= at < until_s)


@dataclass
class HangingRun:
    """One run; times in seconds since its beginning."""

    streams: list[Stream]
    stopped_s: float = 0.0
    isolated_s: float = 0.0
    continued_s: float = 0.0
    closed_s: float = 0.0
    end_s: float = 0.0

    @property
    def isolation_s(self) -> float:
        """Seconds from SIGSTOP to the isolation: the time that the breaker needed to detect the hang."""
        return self.isolated_s - self.stopped_s

    def spans(self) -> list[tuple[float, float]]:
        """(start, end) of each of SPANS."""
        return [(0.0, self.stopped_s), (self.stopped_s, self.continued_s), (self.continued_s, self.end_s)]

    def stream(self, name: str) -> Stream:
        return next(each for each in self.streams if each.name == name)


def measure(running: BenchInstance, target: LoadTarget, seconds: float) -> HangingRun:
    """Run `seconds` before the broker is stopped, `seconds` without it, and `seconds` after its breaker has closed.

    Raises:
        BenchError: a group takes nothing at the beginning; the breaker has not opened, or not closed.
    """
    course = HangingRun([Stream(name) for name in STREAMS])
    _look_up(target)
    began_s, wall_s, done = time.monotonic(), time.time(), threading.Event()
    callers = [
        threading.Thread(
            target=_call, args=(target, stream, _keys(stream.name), began_s, number * GAP_S / callers, done)
        )
        for stream, callers in zip(course.streams, STREAMS.values(), strict=True)
        for number in range(callers)
    ]
    for caller in callers:
        caller.start()
    log = Path(running.facts["data"]) / "logs" / "producer_proxy.log"
    engine = running.pids[running.facts["broker_groups"][HANGING]]
    try:
        time.sleep(seconds)
        with _stopped(engine):
            course.stopped_s = time.monotonic() - began_s
            time.sleep(seconds)
            course.continued_s = time.monotonic() - began_s
        opened = _told(log, "opened", wall_s + course.stopped_s)
        course.closed_s = _told(log, "closed", wall_s + course.continued_s) - wall_s
        course.isolated_s = opened - wall_s
        time.sleep(seconds)
        course.end_s = time.monotonic() - began_s
    finally:
        done.set()
        for caller in callers:
            caller.join()
    return course


def _look_up(target: LoadTarget) -> None:
    """Have every group take a message: the first look-up of the topic is not measured."""
    sender, who = client(Producer, target.producer), credential(target.app, target.key_id, target.secret)
    keys = [key for stream in STREAMS for key in _keys(stream) if key is not None]
    deadline = time.monotonic() + RECOVERY_S_MAX
    while True:
        messages = [Message(topic=TOPIC, body=_BODY, key=key) for key in keys]
        results = sender.send(SendRequest(credential=who, messages=messages, durability=Durability.MEMORY)).results
        refused = [each for each in results if each.code != Code.OK]
        if not refused:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"a broker group takes no message: {refused[0].error}")
        time.sleep(0.05)


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _call(
    target: LoadTarget,
    stream: Stream,
    keys: Sequence[str | None],
    began_s: float,
    offset_s: float,
    done: threading.Event,
) -> None:
    sender, who = client(Producer, target.producer), credential(target.app, target.key_id, target.secret)
    timeout_ms = GIVE_UP_MS if stream.name == "keys of the hanging one" else None
    for number, key in zip(count(), cycle(keys), strict=False):
        time.sleep(max(0.0, began_s + offset_s + number * GAP_S - time.monotonic()))
        if done.is_set():
            return
        message = Message(topic=TOPIC, body=_BODY, key=key)
        request = SendRequest(credential=who, messages=[message], durability=Durability.MEMORY, timeout_ms=timeout_ms)
        at_s = time.monotonic()
        (result,) = sender.send(request).results
        stream.calls.append((at_s - began_s, time.monotonic() - at_s, result.code))


def _keys(stream: str) -> list[str | None]:
    """Keys that the callers of a stream use in turn."""
    if stream == "unordered":
        return [None]
    names = [f"group-{number}" for number in range(1, GROUPS + 1)]
    homes = Placement(names).homes(topic_hash(TOPIC.encode()), QUEUES)
    keys = [str(number) for number in range(100)]
    hangs = {key: names[homes[queue_of(key.encode(), QUEUES)]] == HANGING for key in keys}
    return [key for key in keys if hangs[key] == (stream == "keys of the hanging one")]


def _told(log: Path, what: str, since: float) -> float:
    """Unix time of the proxy's first log line about the hanging group's breaker at or after `since`."""
    deadline = time.monotonic() + RECOVERY_S_MAX
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if f"broker_group={HANGING}: breaker {what}" in line:
                at = datetime.fromisoformat(line.split()[0]).timestamp()
                if at >= since - 0.001:  # the log has milliseconds
                    return at
        time.sleep(0.05)
    raise BenchError(f"the breaker of {HANGING} has not {what}")


def lines(course: HangingRun) -> list[str]:
    """The figures, one line per stream and span."""
    told = [
        f"isolated {course.isolation_s * 1000:.0f} ms after SIGSTOP; "
        f"closed {(course.closed_s - course.continued_s) * 1000:.0f} ms after SIGCONT"
    ]
    for stream in course.streams:
        for name, span in zip(SPANS, course.spans(), strict=True):
            took = stream.took_s(*span)
            figures = ", ".join(
                f"{label} {took[min(len(took) - 1, int(len(took) * share))] * 1000:.2f}"
                for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
            )
            codes = ", ".join(
                f"{Code._VALUES_TO_NAMES[code]} {many:,}" for code, many in sorted(stream.codes(*span).items())
            )
            told.append(f"{stream.name:24} {name:15} {len(took):6,} calls, ms: {figures}; {codes}")
    return told


def draw(course: HangingRun, path: Path) -> None:
    """Draw every call as a dot, and the p99 of each quarter of a second as a line."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "penstock"  # the same run, the same file
    from matplotlib import pyplot

    colours = dict(zip(STREAMS, ("#4a5fa5", "#1b7f5c", "#c2571a"), strict=True))
    figure, axis = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    for stream in course.streams:
        colour = colours[stream.name]
        at, took, _ = zip(*stream.calls, strict=True)
        axis.scatter(at, [1000 * each for each in took], s=2, color=colour, alpha=0.3, linewidths=0, rasterized=True)
        axis.plot(*_p99s(stream, course.end_s), color=colour, linewidth=1.5, label=f"{stream.name}, p99")
    axis.set_yscale("log")
    marks: dict[str, Any] = {
        "SIGSTOP": course.stopped_s, "": course.isolated_s, "SIGCONT": course.continued_s, "closed": course.closed_s,
    }  # fmt: skip
    for name, moment in marks.items():
        axis.axvline(moment, color="#666", linewidth=0.8, linestyle=":")
        axis.annotate(name, (moment, axis.get_ylim()[1]), fontsize=8, va="top", rotation=90, ha="right")
    axis.set_xlabel("seconds")
    axis.set_title(f"a send, ms; the hanging broker was isolated after {course.isolation_s * 1000:.0f} ms", fontsize=10)
    axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0, 0.85))
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None}, dpi=150)
    pyplot.close(figure)


def _p99s(stream: Stream, end_s: float, step_s: float = 0.25) -> tuple[list[float], list[float]]:
    moments, values = [], []
    for step in range(int(end_s / step_s)):
        if took := stream.took_s(step * step_s, (step + 1) * step_s):
            moments.append((step + 0.5) * step_s)
            values.append(1000 * took[int(len(took) * 0.99)])
    return moments, values


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--plot", type=Path, help="where to write the picture")
    arguments = parser.parse_args()
    settings = LoadSettings(topics=1, topic_pattern=TOPIC, queues=QUEUES)
    try:
        with instance.own("--groups", str(GROUPS)) as own, own.prepared(settings) as target:
            course = measure(own, target, arguments.seconds)
    except BenchError as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return 1
    print(machine())
    for line in lines(course):
        print(line)
    if arguments.plot:
        draw(course, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
