"""Delayed messages in an engine of their own, over its link: memory and restart with many pending, and lateness at a
given rate.

Question: `pending`: how much does the engine's memory grow by N pending messages, what does an add cost, and how long
does a start with them take after kill -9? `firing`: how many per second reach a waiting consumer, and how late (p50,
p99, p99.9, maximum): as stored in their queue, to the millisecond, and as received. Settings: bodies of 128 bytes
without keys, one topic of 8 queues, adds of 1,000 with durability MEMORY; due times of `firing` evenly spread over the
seconds given; one consumer on the same machine that acknowledges everything. Excluded: making the requests; the
proxies. Run: `python -m bench.timers [pending] [firing] [--count 10000000] [--rate 10000] [--seconds 10]`; one line per
workload.
"""

import argparse
import json
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.histogram import Histogram
from bench.outcome import commit
from bench.servers import cpu_seconds, rss_bytes
from common.secret_file import ensure_key
from engine.client.admin import AdminClient
from engine.client.timers import ANY_QUEUE, Timer, decode_added, encode_add
from engine.link import layout
from engine.link.acknowledgement import AckRange
from engine.link.pull import decode_answer, encode_pull
from engine.link.topic import encode_topics

TOPIC, QUEUES, BODY = "bench-timers", 8, bytes(128)
MESSAGE = b"\x0b\x00\x02" + struct.pack(">i", len(BODY)) + BODY + b"\0"
RECORD = struct.Struct(f"<IBQQ{len(MESSAGE)}x")
"""Size ‖ flags ‖ the assigned id: due time and number ‖ message."""

ADD_COUNT = 1000
READY_S_MAX = 120.0
LINK_S_MAX = 60.0
DAY_MS = 86_400_000
SHARES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))


class Engine:
    """A running engine process and a link to it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._key, self._admin_key = (ensure_key(Path(directory) / name) for name in ("cluster.key", "admin.key"))
        self._process: subprocess.Popen | None = None

    def start(self) -> float:
        """Start the engine on its directory; return the seconds until it is ready."""
        read, write = os.pipe()
        line = [sys.executable, "-P", "-m", "engine", "--data", f"{self._directory}/engine", "--listen", "127.0.0.1:0"]
        line += ["--cluster-key", str(self._key), "--admin-key", str(self._admin_key), "--ready-fd", str(write)]
        began = time.perf_counter()
        self._process = subprocess.Popen(line, pass_fds=(write,), stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as ready:
            if not select.select([ready], [], [], READY_S_MAX)[0]:
                sys.exit("the engine was not ready in time")
            port = json.loads(ready.readline())["port"]
        seconds = time.perf_counter() - began
        self.link = AdminClient(("127.0.0.1", port), self._admin_key.read_bytes(), timeout_s=LINK_S_MAX)
        return seconds

    def ask(self, op: int, payload: bytes) -> bytes:
        """Send one request that must succeed."""
        code, answer = self.link.call(op, payload)
        if code != layout.OK:
            sys.exit(f"the engine refused operation {op}: {code} {answer.decode(errors='replace')}")
        return answer

    @property
    def proc(self) -> Path:
        """Return the process's directory in /proc."""
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}")

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        assert self._process is not None
        self.link.close()
        self._process.kill()
        self._process.wait()


@contextmanager
def engine() -> Iterator[Engine]:
    """An engine in a temporary directory (TMPDIR chooses the disk)."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        made = Engine(directory)
        made.start()
        try:
            yield made
        finally:
            made.kill()


def topic_id(engine: Engine) -> int:
    """Create the one topic and return its id."""
    return json.loads(engine.ask(layout.TOPIC, encode_topics([(TOPIC, QUEUES)])))["topics"][0]["id"]


def add(engine: Engine, topic: int, dues: list[int], first: int) -> None:
    """Add a message for each due time, numbered from `first` on."""
    timers = [
        Timer(due, topic, ANY_QUEUE, 0, 0, 0, 0, 1, 1, 16, 0, b"\1" + struct.pack("<QQ", due, first + at) + MESSAGE)
        for at, due in enumerate(dues)
    ]
    codes = decode_added(engine.ask(layout.TIMER_ADD, encode_add(layout.MEMORY, timers)))
    if any(code for code, _, _ in codes):
        sys.exit(f"refused: {set(codes)}")


def pending(count: int) -> None:
    """Fill, measure memory, kill and start again."""
    chance = random.Random(1)
    with engine() as running:
        topic = topic_id(running)
        add(
            running, topic, [now_ms() + DAY_MS] * ADD_COUNT, 1 << 60
        )  # the first add allocates memory that does not count for the timers
        before, cpu_s = rss_bytes(running.proc), cpu_seconds(running.proc)
        for first in range(0, count, ADD_COUNT):
            start = now_ms() + DAY_MS
            add(running, topic, [start + chance.randrange(399 * DAY_MS) for _ in range(ADD_COUNT)], first)
        grown, cpu_s = rss_bytes(running.proc) - before, cpu_seconds(running.proc) - cpu_s
        running.kill()
        start_s = running.start()
        restarted = rss_bytes(running.proc) - before
        counted = json.loads(running.ask(layout.ADMIN, b'{"verb": "status"}'))["timers_pending"]
    print(
        f"timers_pending commit={commit()} count={count:,} rss_growth={grown / 1e6:.0f} MB ({grown / count:.1f} B each) "
        f"add={cpu_s / count * 1e6:.2f} us restart={start_s:.2f} s rss_growth_after_restart={restarted / 1e6:.0f} MB "
        f"pending_after_restart={counted:,}"
    )


def firing(rate: int, seconds: float) -> None:
    """Fire at a rate into a waiting consumer."""
    count = int(rate * seconds)
    stored, received = Histogram(), Histogram()
    with engine() as running:
        topic = topic_id(running)
        start = now_ms() + 3000 + count // 10  # each add takes 20 us, more on a busy machine
        for first in range(0, count, ADD_COUNT):
            dues = [start + int(number / rate * 1000) for number in range(first, min(first + ADD_COUNT, count))]
            add(running, topic, dues, first)
        if now_ms() > start:
            sys.exit("adding took longer than planned")
        cpu_s, seen, early = cpu_seconds(running.proc), 0, 0
        acks: list[AckRange] = []
        while seen < count:
            pull = encode_pull(
                "bench", [(TOPIC, QUEUES)], max_messages=5000, max_bytes=4 << 20, wait_ms=10_000, acks=acks
            )
            _, pieces = decode_answer(running.ask(layout.PULL, pull))
            now_ns = time.time_ns()
            acks = [AckRange(piece.token, piece.first_delta, piece.count) for piece in pieces]
            for piece in pieces:
                for _, _, due, _ in RECORD.iter_unpack(piece.records):
                    early += piece.stored_at_ms < due
                    stored.record((piece.stored_at_ms - due) * 1_000_000)
                    received.record(now_ns - due * 1_000_000)
                seen += piece.count
        took_s = time.time() - start / 1000
        cpu_s = cpu_seconds(running.proc) - cpu_s
    print(
        f"timers_firing commit={commit()} rate={rate:,}/s planned={seconds:g} s took={took_s:.2f} s ({count / took_s:,.0f}/s) "
        f"early={early} engine_cpu={cpu_s / count * 1e6:.2f} us late_stored_ms: {shown(stored)} late_received_ms: {shown(received)}"
    )


def shown(histogram: Histogram) -> str:
    """Format percentiles and maximum of a histogram, in milliseconds."""
    shares = " ".join(f"{name}={histogram.percentile(share) / 1e6:.1f}" for name, share in SHARES)
    return f"{shares} max={histogram.max_ns / 1e6:.1f}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", choices=["pending", "firing", []], help="both unless named")
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    if "pending" in options.workloads or not options.workloads:
        pending(options.count)
    if "firing" in options.workloads or not options.workloads:
        firing(options.rate, options.seconds)


if __name__ == "__main__":
    main()
