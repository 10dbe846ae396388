"""Cost of lookup indexes, and latency of a look-up by id and by key, with and without them.

Question: how much CPU and disk per message does each family take, how much does it delay appends, and how many
milliseconds does a look-up take in a log of one GiB with an open segment of 200 MiB after it, and in a log of one open
segment?
Settings: messages of 128 bytes with an id of 20 characters and one of 100,000 keys, 16 in a batch, 16 topics of 8
queues, segments of 256 MiB, page cache warm, one process; files are made without pauses, so the seconds are those of
the work, but at the default pace beside the appends, which come every half millisecond. Excluded: making the messages;
the link; the log's syncs.
Run: `python -m bench.lookup [GiB [open]]`; one line per workload; "open": only the open segment.
"""

import random
import resource
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from engine.config import LogConfig
from engine.env.background import PacedThread
from engine.env.real import RealEnv
from engine.log import Log, open_log
from engine.log.format import pack_batch, pack_record
from engine.log.lookup_index.lookup_file import FAMILIES
from engine.log.lookup_index.maker import IDLE_S
from engine.log.lookup_index.search import LookupCursor, LookupQuery

TOPICS, QUEUES, BODY, RECORDS, BATCHES, KEYS, LOOKS, APPENDS = 16, 8, 76, 16, 64, 100_000, 200, 20_000
NOW_MS, TIME_MAX = 1_700_000_000_000, 1 << 62
MEBIBYTE = 1 << 20


def text(field: int, value: bytes) -> bytes:
    """A text field in Thrift binary."""
    return struct.pack(">bhi", 11, field, len(value)) + value


def message(number: int) -> bytes:
    """Encode a 128-byte message with an id and a key."""
    return text(2, bytes(BODY)) + text(3, b"customer-%d" % (number % KEYS)) + text(6, b"order-%014d" % number) + b"\0"


def fill(log: Log, size: int) -> int:
    """Append messages until the log has `size` bytes; return their number."""
    number = 0
    while log.end_position < size:
        batches = []
        for _ in range(BATCHES):
            records = [pack_record(message(each)) for each in range(number, number + RECORDS)]
            batches.append(pack_batch(0, 1 + number // RECORDS % TOPICS, number % QUEUES, records))
            number += RECORDS
        log.append(b"".join(batches), BATCHES, NOW_MS + number // 100)
    return number


def make(log: Log) -> float:
    """Make all index files; return this thread's seconds of processor time."""
    began = time.thread_time()
    next(pause_s for pause_s in log.look_up.maker.steps() if pause_s == IDLE_S)
    return time.thread_time() - began


def beside(log: Log, what: str, maker: bool) -> None:
    """Append a message every half millisecond, with or without files being made, and print the latencies."""
    thread = PacedThread("making lookup indexes", log.look_up.maker.steps()) if maker else None
    frame, spent = pack_batch(0, 1, 0, [pack_record(message(0))]), []
    for _ in range(APPENDS):
        time.sleep(0.0005)
        began = time.perf_counter()
        log.append(frame, 1, NOW_MS)
        spent.append((time.perf_counter() - began) * 1000)
    if thread is not None:
        thread.stop()
    spent.sort()
    print(
        f"append {what}: p50 {spent[APPENDS // 2]:.3f} ms, p99 {spent[APPENDS * 99 // 100]:.3f} ms, "
        f"p99.9 {spent[APPENDS * 999 // 1000]:.3f} ms, max {spent[-1]:.1f} ms, {log.look_up.maker.counts.read_bytes >> 20} MiB read"
    )


def names_of(family: str, total: int) -> Iterator[tuple[int, bytes]]:
    """(topic id, name) of messages drawn at random."""
    while True:
        number = random.randrange(total)
        name = b"order-%014d" % number if family == "id" else b"customer-%d" % (number % KEYS)
        yield 1 + number // RECORDS % TOPICS, name


def look(log: Log, family: str, topic_id: int, name: bytes, places: Callable[[list], list]) -> tuple[float, int]:
    """(milliseconds, messages found) of one look-up over some of the segments, to the end."""
    cursor: LookupCursor | None = LookupCursor(0, 0)
    began, found = time.perf_counter(), 0
    while cursor is not None:
        search = log.look_up.search(LookupQuery(FAMILIES[family], topic_id, name, 0, TIME_MAX, 1000, 4 << 20), cursor)
        search._places = places(search._places)
        search.run()
        found += len(search.found)
        cursor = search.cursor
    return (time.perf_counter() - began) * 1000, found


def measure(log: Log, what: str, family: str, total: int, times: int, places: Callable[[list], list]) -> None:
    """Print the latencies of look-ups of names drawn at random."""
    names = names_of(family, total)
    taken = [look(log, family, *next(names), places) for _ in range(times)]
    spent = sorted(ms for ms, _ in taken)
    found = sum(count for _, count in taken) / times
    print(f"{what}: p50 {spent[times // 2]:.2f} ms, p99 {spent[times * 99 // 100]:.2f} ms, {found:.1f} found")


def peak_mib() -> float:
    """Peak resident memory of the process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def open_segment(directory: str, size: int) -> None:
    """Measure one open segment: look-ups by reading, the cost of its partial indexes, and look-ups by them."""
    log = open_log(RealEnv(), directory, LogConfig(segment_bytes=size + 64 * MEBIBYTE))
    log.create_topics([(f"topic.{number}", QUEUES) for number in range(TOPICS)])
    total = fill(log, size)
    what = f"in an open segment of {size >> 20} MiB"
    for family in FAMILIES:
        measure(log, f"{family} {what}, all read", family, total, 3, lambda places: places)
    before, counts = peak_mib(), log.look_up.maker.counts
    seconds = make(log)
    print(
        f"runs of both families: {seconds / total * 1e9:.0f} ns CPU/msg, {counts.runs} made, "
        f"{counts.written_bytes / total:.1f} bytes/msg written, peak of memory from {before:.0f} to {peak_mib():.0f} MiB"
    )
    for family in FAMILIES:
        there = len(log.look_up.maker.partials.of(log.appender.segment_base, FAMILIES[family]))
        measure(log, f"{family} {what}, {there} runs", family, total, LOOKS * 5, lambda places: places)
    fill(log, size + 65 * MEBIBYTE)
    log.checkpoint()
    print(
        f"both files of the sealed segment from its runs: {make(log) / total * 1e9:.0f} ns CPU/msg, peak of memory {peak_mib():.0f} MiB"
    )
    log.close()


def main() -> None:
    """Run each part in its own directory."""
    size = round(float(sys.argv[1] if len(sys.argv) > 1 else 1.2) * 1024) * MEBIBYTE
    directory = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        open_segment(f"{directory}/open", size)
        if "open" in sys.argv:
            return
        log = open_log(RealEnv(), directory, LogConfig(look_up=()))
        log.create_topics([(f"topic.{number}", QUEUES) for number in range(TOPICS)])
        total = fill(log, size)
        log.checkpoint()
        beside(log, "alone", False)
        log.close()
        log = open_log(RealEnv(), directory, LogConfig())
        beside(log, "while files are made", True)
        sealed = total * (log.appender.segment_base / log.end_position)
        for families in ((), ("id",), ("id", "key")):
            log.close()
            log = open_log(RealEnv(), directory, LogConfig(look_up=families))
            if not families:
                make(log)  # removes the files made before
                continue
            seconds, counts = make(log), log.look_up.maker.counts
            print(
                f"file of {families[-1]}s: {seconds / sealed * 1e9:.0f} ns CPU/msg, "
                f"{counts.written_bytes / sealed:.1f} bytes/msg written with its runs, {counts.read_bytes / seconds / 1e6:.0f} MB/s"
            )
        for family in FAMILIES:
            measure(log, f"{family} in sealed segments", family, round(sealed), LOOKS, lambda places: places[:-1])
            measure(log, f"{family} in all, an open one of {(log.end_position - log.appender.segment_base) >> 20} MiB among them",
                    family, total, LOOKS, lambda places: places)  # fmt: skip
        log.close()
        log = open_log(RealEnv(), directory, LogConfig(look_up=()))
        make(log)  # removes the files
        measure(log, "id without files", "id", total, 5, lambda places: places)
        log.close()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
