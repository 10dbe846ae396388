"""Arguments that an engine passes to the log when it opens it, and in each step of retention."""

from machine import NOW

from engine.config import LogConfig
from engine.env.simulated import SimulatedEnv
from engine.log.format import parse_segment_header
from engine.log.read.retentions import Retention


class KeepBytes:
    """A policy that keeps so many bytes of every topic."""

    generation, is_known = 1, True

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def of(self, topic: str) -> Retention:
        return Retention(size_bytes=self.size_bytes)


def test_a_policy_given_at_the_start_hides_what_is_past_it(form):
    log = form.log.open_log(SimulatedEnv(), "/data", LogConfig(), retention_policy=KeepBytes(1000))
    log.create_topics([("first", 1)])
    for _ in range(20):
        log.append(form.format.pack_batch(0, 1, 0, [form.format.pack_record(b"x" * 100)]), 1, NOW)
    first, end = log.bounds(1, 0)
    assert 0 < first < end == 20 and log.start_offsets.of(1, 0) == first
    log.close()


def test_a_notification_given_at_the_start_is_called_until_the_log_is_closed(form):
    called = []
    log = form.log.open_log(SimulatedEnv(), "/data", LogConfig(), notify=lambda: called.append(True))
    log.cold.notify()
    log.close()
    log.cold.notify()
    assert called == [True]


def test_closing_twice_is_no_error(form):
    log = form.log.open_log(SimulatedEnv(), "/data", LogConfig())
    log.close()
    log.close()


def test_a_header_that_is_written_in_pieces_is_whole(form):
    env = SimulatedEnv()
    env.write_bytes_max = 5
    form.log.open_log(env, "/data", LogConfig()).close()
    path = next(path for path in env.files if path.endswith(".seg"))
    assert parse_segment_header(bytes(env.files[path].seen[:64]), path) is not None
