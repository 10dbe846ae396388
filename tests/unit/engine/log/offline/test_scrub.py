"""The scrub finds what verify finds, at its pace, and leaves alone what is being written."""

import logging

import pytest

from engine.env.background import PacedThread
from engine.env.real import RealEnv
from engine.log.offline.directory import opened
from engine.log.upkeep.scrub import IDLE_S, Scrub
from tests.waiting import until


@pytest.fixture
def scrub(stopped):
    with opened(stopped.path) as directory:
        return Scrub(RealEnv(), f"{stopped.path}/log", directory.log_id, 1 << 20)


def one_round(scrub):
    """Seconds that it would have waited."""
    waited = 0.0
    for pause_s in scrub.steps():
        if pause_s == IDLE_S:
            return waited
        waited += pause_s
    return waited


def test_a_round_reads_every_sealed_segment_at_the_pace(scrub, stopped):
    waited = one_round(scrub)
    sealed = len(stopped.files(".idx"))
    assert scrub.counts.segments == sealed > 2 and scrub.counts.damage == 0
    assert waited == pytest.approx(scrub.counts.bytes / (1 << 20))
    assert scrub.counts.bytes > sum(batch.size for number in range(sealed) for batch in stopped.batches(number))


def test_damage_is_counted_once_and_logged_with_file_and_position(scrub, stopped, caplog):
    caplog.set_level(logging.ERROR)
    batch = stopped.batches(1)[4]
    stopped.write(batch.path, batch.at + 60, b"\xff\xff")
    stopped.write(stopped.files(".idx")[0], 100, b"\xff\xff")
    one_round(scrub)
    one_round(scrub)
    assert scrub.counts.damage == 2
    assert f"file={batch.path} position={batch.position}" in caplog.text
    assert f"file={stopped.files('.idx')[0]} position=0" in caplog.text


def test_a_segment_that_retention_takes_meanwhile_is_no_damage(scrub, stopped):
    steps = scrub.steps()
    next(steps)
    for path in [*stopped.files(".idx")[1:], *stopped.files(".seg")[1:]]:
        path.unlink()
    for pause_s in steps:
        if pause_s == IDLE_S:
            break
    assert scrub.counts.damage == 0


def test_its_thread_works_and_ends(scrub):
    scrub.bytes_per_s = 1 << 30
    thread = PacedThread("scrub", scrub.steps())
    until(lambda: scrub.counts.rounds, "a first round")
    thread.stop()
    rounds = scrub.counts.rounds
    assert rounds == 1
