"""Cost of checking clients' ids in the log: the append of a message with an id, checked and unchecked, and the start
with a full window.

Question: how many nanoseconds per message does the check add, with a window that is empty, filling and full, and how
long does an engine take to start with that window? Settings: messages of 128 bytes with an id of 20 characters, one per
batch, frames of 16 batches, page cache only, 16 topics of 8 queues, default segments and window memory, one process,
one thread. Excluded: making the frames, done before the clock starts, round by round; start-up of Python; sealing,
which runs in a thread. Run: `python -m bench.ids [messages]`; one line per workload.
"""

import shutil
import struct
import sys
import tempfile
import time

from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.log import Log, open_log
from engine.log.format import pack_batch, pack_record

TOPICS, QUEUES, BODY, BATCHES, ROUND = 16, 8, 95, 16, 100_000
WINDOW_MS = 3_600_000


def message(number: int) -> bytes:
    """Thrift binary of a message with a body and an id."""
    shown = b"order-%014d" % number
    body = b"\x0b\x00\x02" + struct.pack(">i", BODY) + bytes(BODY)
    return body + b"\x0b\x00\x06" + struct.pack(">i", len(shown)) + shown + b"\0"


def frames(first: int, count: int, checked: bool) -> list[bytes]:
    """Frames of one-message batches with ids from `first` on."""
    made = []
    for number in range(first, first + count):
        batch = pack_batch(0, 1 + number % TOPICS, number // TOPICS % QUEUES, [pack_record(message(number))])
        made.append(
            batch[:11] + b"\1" + batch[12:28] + WINDOW_MS.to_bytes(4, "little") + batch[32:] if checked else batch
        )
    return [b"".join(made[at : at + BATCHES]) for at in range(0, count, BATCHES)]


def append(log: Log, first: int, total: int, checked: bool) -> float:
    """Nanoseconds of processor time of this thread per message."""
    used = 0.0
    for start in range(first, first + total, ROUND):
        made = frames(start, ROUND, checked)
        now_ms = time.time_ns() // 1_000_000
        began = time.thread_time()
        for frame in made:
            log.append(frame, BATCHES, now_ms)
        used += time.thread_time() - began
    return used / total * 1e9


def main() -> None:
    """All workloads on one directory."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000_000
    directory = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        log = open_log(RealEnv(), directory, LogConfig())
        log.create_topics([(f"topic.{number}", QUEUES) for number in range(TOPICS)])
        print(f"unchecked: {append(log, 0, 10 * ROUND, False):.0f} ns/msg")
        ids, done = log.appender.ids, 0
        while done < total:
            step = min(10 * ROUND, total - done)
            spent = append(log, done, step, True)
            done += step
            print(
                f"checked: {spent:.0f} ns/msg with {ids.count:,} ids remembered, "
                f"{ids.size_bytes >> 20} MiB, {ids.forgotten:,} forgotten"
            )
        print(f"duplicates: {append(log, done - ROUND, ROUND, True):.0f} ns/msg")
        log.close()
        began = time.perf_counter()
        log = open_log(RealEnv(), directory, LogConfig())
        seconds = time.perf_counter() - began
        print(f"start: {seconds:.2f} s, {log.appender.ids.count:,} ids remembered, log of {log.end_position >> 20} MiB")
        log.close()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
