"""CPU of the commit log alone: append, read and recovery, without network, proxies or delivery.

Question: how many nanoseconds per message do append and read of the engine's log take, and how many MB/s does recovery
scan? Settings: messages of 128 bytes, page cache only (no sync), 16 topics of 8 queues, default segments, one process,
one thread. Excluded: making the frames, which is done before the clock starts; the disk's write-back, which runs later;
start-up of Python. Run: `python -m bench.log [--twin]`; one line per workload.
"""

import os
import shutil
import sys
import tempfile
import time

if "--twin" in sys.argv:
    os.environ["PENSTOCK_PURE"] = "1"

from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.log import Log, open_log
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record
from engine.log.write.native import NATIVE

TOPICS, QUEUES, BODY = 16, 8, 128
SCALE = 1 if NATIVE else 20


def frame(batches: int, records: int, first: int) -> bytes:
    """Make a frame of `batches` batches of `records` records each, spread over the topics and queues."""
    record = pack_record(bytes(BODY))
    return b"".join(
        pack_batch(KIND_MESSAGES, 1 + (first + i) % TOPICS, (first + i) // TOPICS % QUEUES, [record] * records)
        for i in range(batches)
    )


def append(log: Log, name: str, batches: int, records: int, calls: int) -> None:
    """Time the appends of frames made beforehand."""
    frames = [frame(batches, records, i * batches) for i in range(64)]
    started, used = time.perf_counter(), time.process_time()
    for call in range(calls):
        log.append(frames[call & 63], batches, 1)
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    messages = calls * batches * records
    print(
        f"{name}: {messages / seconds / 1e6:.2f} M msg/s, {seconds / messages * 1e9:.0f} ns/msg, "
        f"{cpu / messages * 1e9:.0f} ns CPU/msg, {seconds / calls / batches * 1e6:.2f} µs/batch"
    )


def read(log: Log, name: str, records: int) -> None:
    """Time reading every queue from its start."""
    ends = {(topic, queue): log.bounds(topic, queue)[1] for topic in range(1, TOPICS + 1) for queue in range(QUEUES)}
    started = time.perf_counter()
    for (topic, queue), end in ends.items():
        offset = 0
        while offset < end:
            pieces = log.read(topic, queue, offset, records, 1 << 22)
            offset = pieces[-1].first_offset + pieces[-1].count
    seconds = time.perf_counter() - started
    total = sum(ends.values())
    print(f"{name}: {total / seconds / 1e6:.2f} M records/s")


def recover(directory: str, name: str) -> None:
    """Time opening a directory whose last segment must be scanned."""
    config = LogConfig()
    used = sum(entry.stat().st_blocks * 512 for entry in os.scandir(f"{directory}/log"))
    started = time.perf_counter()
    log = open_log(RealEnv(), directory, config)
    seconds = time.perf_counter() - started
    scanned = log.end_position % config.segment_bytes
    print(f"{name}: {seconds * 1000:.0f} ms, {scanned / seconds / 1e6:.0f} MB/s, {used / 2**20:.0f} MiB on disk")
    log.close()


def run(name: str, batches: int, records: int, calls: int) -> None:
    """Append, read and recover one shape of traffic in its own directory."""
    directory = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        log = open_log(RealEnv(), directory, LogConfig())
        log.create_topics((f"topic-{i}", QUEUES) for i in range(TOPICS))
        append(log, f"append {name}", batches, records, calls)
        read(log, f"read {name}", 1000)
        log.close()
        recover(directory, f"recover {name}")
    finally:
        shutil.rmtree(directory)


def main() -> None:
    """All workloads."""
    print(f"form: {'native' if NATIVE else 'twin'}")
    run("16 batches of 1", 16, 1, 80_000 // SCALE)
    run("1 batch of 50", 1, 50, 30_000 // SCALE)
    run("8 batches of 50", 8, 50, 4_000 // SCALE)


if __name__ == "__main__":
    main()
