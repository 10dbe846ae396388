"""Writer for power cuts: a log on a file system that will be shut down, appended to with group commit.

First it recovers and compares everything that was promised before; then it writes, and promises in lines on a pipe:

    checked RECORDS DAMAGE           all promises were looked at
    lost WHAT                        one was not kept, or bytes were read that were never written
    ack TOPIC QUEUE OFFSET COUNT ROUND NUMBER    records ROUND/NUMBER … are durable there
    topic NAME ID, progress NUMBER   the same of those
"""

import os
from dataclasses import dataclass, field
from random import Random

from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.errors import CorruptionError
from engine.log import Log, open_log
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record, split_records

_ENV = RealEnv()
CONFIG = LogConfig(segment_bytes=1 << 18)
QUEUES = 3
TOPIC = "promised"
IN_FLIGHT_MAX = 16


@dataclass
class Promises:
    """All that was promised on one file system before its latest cut."""

    records: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    """(topic id, queue, offset) to (round, number)."""
    topics: dict[str, int] = field(default_factory=dict)
    progress: int = -1

    def take(self, line: bytes) -> None:
        """Hold the log to a line that was read before the cut."""
        what, *values = line.decode().split()
        if what == "ack":
            topic, queue, offset, count, round_, number = map(int, values)
            for at in range(count):
                self.records[topic, queue, offset + at] = round_, number + at
        elif what == "topic":
            self.topics[values[0]] = int(values[1])
        elif what == "progress":
            self.progress = max(self.progress, int(values[0]))


def body(round_: int, number: int) -> bytes:
    """Return the unique content of a record."""
    return b"%d.%d." % (round_, number) * (1 + number % 97)


def is_ours(data: bytes) -> bool:
    """Whether the bytes are some record's, unchanged."""
    try:
        round_, number = map(int, data.split(b".", 2)[:2])
    except ValueError:
        return False
    return data == body(round_, number)


def run(directory: str, out: int, round_: int, seed: str, promises: Promises, *, careless: bool) -> None:
    """Recover, compare, then write until the power is cut.

    Args:
        careless: promise at once and not after the sync; a test that such a log is caught.
    """
    log = open_log(_ENV, directory, CONFIG)

    def say(line: str) -> None:
        os.write(out, line.encode() + b"\n")

    topic_id = log.create_topics([(TOPIC, QUEUES)])[0].id
    for fault in faults(log, topic_id, promises):
        say(f"lost {fault}")
    say(f"checked {len(promises.records)} {len(log.damage)}")
    Writer(log, topic_id, round_, Random(seed), say, careless).run()


def faults(log: Log, topic_id: int, promises: Promises):
    """Promises that the log does not keep, and bytes that were never written."""
    found: dict[tuple[int, int, int], bytes] = {}
    for queue in range(QUEUES):
        for offset, data in read_all(log, topic_id, queue):
            found[topic_id, queue, offset] = data
            if not is_ours(data):
                yield f"queue={queue} offset={offset}: wrong bytes"
    for place, (round_, number) in promises.records.items():
        if found.get(place) != body(round_, number):
            yield f"(topic, queue, offset)={place} round={round_} number={number}: {found.get(place, b'not there')[:40]!r}"
    for name, expected in promises.topics.items():
        topic = log.topic(name)
        if topic is None or topic.id != expected:
            yield f"topic={name} id={expected}: {topic}"
    progress = int(dict(log.progress()).get(b"group", b"-1"))
    if progress < promises.progress:
        yield f"progress={promises.progress}: {progress}"


def read_all(log: Log, topic_id: int, queue: int):
    """(offset, record) of all that can be read; a damaged unconfirmed batch is skipped."""
    offset, end = log.bounds(topic_id, queue)
    while offset < end:
        try:
            pieces = log.read(topic_id, queue, offset, 1000, 1 << 20)
        except CorruptionError as error:
            if error.next_offset is None:
                return
            offset = error.next_offset
            continue
        for piece in pieces:
            for data in split_records(piece.records):
                yield offset, data
                offset += 1


class Writer:
    """Appends frames of a few batches; up to some of them wait for their sync at any time."""

    def __init__(self, log: Log, topic_id: int, round_: int, chance: Random, say, careless: bool) -> None:
        self._log, self._topic_id, self._round, self._chance = log, topic_id, round_, chance
        self._say, self._careless = say, careless
        self._number = 0
        self._in_flight = 0

    def run(self) -> None:
        """Never returns."""
        import gevent  # its loop must be this process's own

        while True:
            kind = self._chance.random()
            if kind < 0.9:
                self._append(self._chance.randrange(1, 9))
            elif kind < 0.95:
                name = f"born.{self._round}.{self._number}"
                self._promise(f"topic {name} {self._log.create_topics([(name, 1)])[0].id}")
            else:
                number = self._round * 1_000_000 + self._number
                self._log.put_progress([(b"group", b"%d" % number)])
                self._promise(f"progress {number}")
            gevent.sleep(0)
            while self._in_flight >= IN_FLIGHT_MAX:
                gevent.sleep(0)

    def _append(self, batches: int) -> None:
        frame, lines = b"", []
        for _ in range(batches):
            queue, count = self._chance.randrange(QUEUES), self._chance.randrange(1, 6)
            records = [pack_record(body(self._round, self._number + at)) for at in range(count)]
            frame += pack_batch(KIND_MESSAGES, self._topic_id, queue, records)
            lines.append((queue, count, self._number))
            self._number += count
        answers = self._log.append(frame, batches, _ENV.now_ms())
        for (code, offset), (queue, count, number) in zip(answers, lines, strict=True):
            if code == 0:
                self._promise(f"ack {self._topic_id} {queue} {offset} {count} {self._round} {number}")

    def _promise(self, line: str) -> None:
        if self._careless:
            self._say(line)
            return
        self._in_flight += 1

        def keep() -> None:
            self._in_flight -= 1
            self._say(line)

        self._log.when_durable(self._log.end_position, keep)
