"""A stopped engine, as callers of a topic with a fallback buffer see it.

Question: with the engine stopped (SIGSTOP) for SECONDS at RATE messages/s, how many sends fail, is any message lost or
out of order in the log, how large is the backlog, how long does it drain, and how long do calls take before and
during the outage, during the drain and after?

Settings: a Penstock of its own, a producer proxy with the buffer given, and a Redis of its own where it needs one. One
message of 128 bytes per call, stock clients in 16 Python threads with 4 keys each, open loop (latency counts from the
planned moment), durability FSYNC. Beside them a topic without a buffer at LIVE_RATE, paused while the engine is
stopped: live traffic that goes to the engine while the backlog drains. Its p99 during the drain is compared with the
one before. The generator shares the machine, and its threads one interpreter: absolute figures are its own as well.
Each run has its own Penstock, proxy, directories and Redis, so several may run side by side.

Run: `python -m bench.fallback --seconds 600 --buffer disk --out run.json`; then `python -m bench.fallback.page run.json
…` draws. It prints one line of JSON; the exit code is 1 when a promise was broken.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.fallback.audit import Audit, audit
from bench.fallback.load import STORED, PacedLoad, TimedCall
from bench.fallback.parts import Backlog, proxy, redis_server
from bench.fallback.seconds import OutageMarks, by_second, count_in, p99_ms
from bench.generator import LoadTarget
from bench.instance import BenchInstance, own
from bench.outcome import commit
from bench.report import machine
from common.admin import applications, topics
from common.admin.administrator import Administrator
from common.config.applying import wait_applied
from common.config.opening import open_store
from common.contract import Code

BUFFERED_TOPIC, PLAIN_TOPIC = "orders", "live"
QUEUES = 4
THREADS, PLAIN_THREADS = 16, 4
AROUND_S = 15.0
WARM_S = 5.0
REST_S = 1.0  # lets live calls finish before the stop
DRAIN_S_MAX = 60.0


def main() -> int:
    options = parser().parse_args()
    try:
        run = measure(options)
    except BenchError as broken:
        print(f"bench.fallback: {broken}", file=sys.stderr)
        return 2
    print(json.dumps(run["figures"]))
    if options.out:
        options.out.write_text(json.dumps(run))
    return 1 if broken_promises(run["figures"]) else 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.fallback", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--seconds", type=float, default=30.0, help="How long the engine is stopped, in seconds.")
    made.add_argument("--rate", type=int, default=1000, help="Messages per second to the buffered topic.")
    made.add_argument("--live-rate", type=int, default=500, help="Messages per second to the topic without a buffer.")
    made.add_argument("--buffer", choices=("disk", "redis", "redis+disk"), default="disk")
    made.add_argument("--redis-mib-max", type=int, default=0, help="maxmemory of that Redis, in MiB (default: none).")
    made.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="File for the figures, per run and per second, for bench.fallback.page.",
    )
    return made


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run, and return the figures and the events of each second."""
    running = commit()
    with ExitStack() as stack:
        instance = stack.enter_context(own())
        stores = []
        if "disk" in options.buffer:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-buffer-"))
            stores += ["--buffer", folder]
        if "redis" in options.buffer:
            stores += ["--buffer-redis", stack.enter_context(redis_server(options.redis_mib_max))]
        ready = stack.enter_context(proxy(instance, stores))
        target = target_of(instance, ready, options.buffer)
        everybody, live = threading.Event(), threading.Event()
        everybody.set()
        live.set()
        load = PacedLoad(target, BUFFERED_TOPIC, options.rate, THREADS, everybody)
        plain = PacedLoad(target, PLAIN_TOPIC, options.live_rate, PLAIN_THREADS, live)
        backlog = Backlog(ready["ops_port"])
        marks = outage(instance.pids["engine"], options.seconds, live, backlog)
        load.stop()
        plain.stop()
        backlog.stop()
        checked = audit(target, BUFFERED_TOPIC, QUEUES, load.stored)
    return {
        "machine": machine(),
        "commit": running,
        "figures": figures(options, load, plain, backlog, marks, checked),
        "marks": marks.as_seconds(),
        "backlog": [(round(at - marks.began, 2), sum(counts.values())) for at, counts in backlog.seen],
        "buffered_p99_ms": by_second(load.calls, marks),
        "live_p99_ms": by_second(plain.calls, marks),
    }


def outage(engine: int, seconds: float, live: threading.Event, backlog: Backlog) -> OutageMarks:
    """Run undisturbed, stop the engine, continue it, wait for the drain, run undisturbed."""
    began = time.monotonic()
    time.sleep(AROUND_S)
    live.clear()
    time.sleep(REST_S)
    stopped = time.monotonic()
    os.kill(engine, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(engine, signal.SIGCONT)
    resumed = time.monotonic()
    live.set()
    drained = backlog.wait_empty(2 * DRAIN_S_MAX)
    time.sleep(AROUND_S)
    return OutageMarks(began, stopped, resumed, drained, time.monotonic())


def target_of(instance: BenchInstance, ready: dict[str, Any], buffer: str) -> LoadTarget:
    """Create both topics, and an application that may send to and read them."""
    store = open_store(instance.facts["config"])
    admin = Administrator(store, "bench")
    topics.create(admin, [BUFFERED_TOPIC], topics.TopicSettings(queues=QUEUES, durability="fsync", buffer=buffer))
    topics.create(admin, [PLAIN_TOPIC], topics.TopicSettings(queues=QUEUES, durability="fsync"))
    may = applications.Grants(send=(BUFFERED_TOPIC, PLAIN_TOPIC), pull=(BUFFERED_TOPIC, "audit"))
    key = applications.create(admin, "bench", may)
    late = wait_applied(store, store.version(), WARM_S)
    store.close()
    if late:
        raise BenchError(f"{', '.join(late)}: the configuration of the run was not applied")
    consumer = instance.facts["consumer_proxy"]
    return LoadTarget(
        (ready["host"], ready["port"]), (consumer["host"], consumer["port"]), key.app, key.key_id, key.secret
    )


def figures(
    options: argparse.Namespace, load: PacedLoad, plain: PacedLoad, backlog: Backlog, marks: OutageMarks, checked: Audit
) -> dict[str, Any]:
    codes = [call.code for call in load.calls]
    windows = marks.windows(WARM_S)
    drain_s = marks.drained - marks.resumed
    return {
        "buffer": options.buffer, "redis_mib_max": options.redis_mib_max, "outage_s": options.seconds,
        "rate": options.rate, "live_rate": options.live_rate,
        "sends": len(codes), "buffered": codes.count(int(Code.BUFFERED)),
        "failed": sum(code not in STORED for code in codes), **checked._asdict(),
        "backlog_max": backlog.highest,
        "in_store_max": {name: max(counts[name] for _, counts in backlog.seen) for name in backlog.seen[-1][1]},
        "drained_s": round(drain_s, 1), "drained_per_s": round(drained_in(load.calls, marks) / drain_s),
        **{f"p99_{name}_ms": p99_ms(load.calls, *window) for name, window in windows.items()},
        **live_figures(list(plain.calls), marks),
    }  # fmt: skip


def drained_in(calls: Iterable[TimedCall], marks: OutageMarks) -> int:
    """Count the messages that went through the buffer in the outage and during the drain."""
    return sum(call.code == Code.BUFFERED and marks.stopped <= call.planned_s < marks.drained for call in calls)


def live_figures(calls: Sequence[TimedCall], marks: OutageMarks) -> dict[str, Any]:
    """Figures of the topic without a buffer.

    Its calls may fail with UNAVAILABLE or OVERLOADED until the proxy has found the engine again. Failed calls return at
    once, so they are left out of the latencies.
    """
    windows = {name: window for name, window in marks.windows(WARM_S).items() if name != "outage"}
    stored = [call for call in calls if call.code in STORED]
    failed = [call for call in calls if call.code not in STORED]
    p99 = {name: p99_ms(stored, *window) for name, window in windows.items()}
    before, drain = p99["before"], p99["drain"]
    return {
        "live_failed": len(failed),
        "live_failed_codes": dict(sorted(Counter(call.code for call in failed).items())),
        "live_failed_until_s": round(max(call.planned_s for call in failed) - marks.resumed, 2) if failed else None,
        "live_samples": {name: count_in(stored, *window) for name, window in windows.items()},
        **{f"live_p99_{name}_ms": value for name, value in p99.items()},
        "live_p99_ratio": round(drain / before, 2) if before and drain else None,
    }


def broken_promises(found: dict[str, Any]) -> list[str]:
    """Return the names of broken promises. Latency is not judged: on a machine with other work it says little."""
    zero = ("failed", "lost", "swapped", "other_ids")
    return [name for name in zero if found[name]] + ["drained_s"] * (found["drained_s"] > DRAIN_S_MAX)


if __name__ == "__main__":
    sys.exit(main())
