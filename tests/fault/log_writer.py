"""Process that appends to a log and prints confirmed appends; tests kill it. Run by test_log_process.py.

    python log_writer.py DIRECTORY [BATCHES]

Each line is "confirmed N": the first N records of topic 1, queue 0 are durable, printed only after the group commit
that covers them.
"""

import sys

import gevent
from gevent.event import Event

from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.log import open_log
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record


def body(number: int) -> bytes:
    """Return the content of record `number`."""
    return b"%08d" % number * 25


def main(directory: str, batches: int) -> None:
    """Append eight batches per turn, each turn with a group commit in flight."""
    env = RealEnv()
    log = open_log(env, directory, LogConfig(segment_bytes=1 << 20))
    log.create_topics([("topic", 1)])
    first = log.bounds(1, 0)[1]
    out = sys.stdout

    def confirm(count: int) -> None:
        out.write(f"confirmed {count}\n")
        out.flush()

    for number in range(first, first + batches, 8):
        frame = b"".join(pack_batch(KIND_MESSAGES, 1, 0, [pack_record(body(n))]) for n in range(number, number + 8))
        answers = log.append(frame, 8, env.now_ms())
        assert [offset for _, offset in answers] == list(range(number, number + 8)), answers
        log.when_durable(log.end_position, lambda count=number + 8: confirm(count))
        gevent.sleep(0)
        if number % 80 == first % 80:
            # Now and then wait, so that many commits happen and not a few huge ones.
            durable = Event()
            log.when_durable(log.end_position, durable.set)
            durable.wait()
    gevent.sleep(0.1)
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
