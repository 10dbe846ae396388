"""Search for topics with pending delayed messages, while timers come, go and move."""

import errno
from random import Random

import pytest

from engine.timers import topic_search
from tests.unit.engine.timers.rig import Rig

TOPICS = 6


@pytest.fixture
def rig(monkeypatch) -> Rig:
    monkeypatch.setattr(topic_search, "READS_PER_STEP", 3)
    made = Rig()
    made.log.create_topics([(f"topic-{number}", 1) for number in range(TOPICS)])
    made.sync()
    return made


def add(rig, topic_id: int, number: int, due_ms: int = 0, **options) -> None:
    timer = rig.timer(f"{topic_id}-{number}", due_ms or rig.now_ms + 1_000_000, **options)._replace(topic_id=topic_id)
    assert rig.timers.add(timer.pack(), 1)[0].code == 0


def done(search) -> set[int]:
    for _ in range(10_000):
        if search.step():
            search.catch_up()
            return search.found
    raise AssertionError("the search has no end")


def test_the_wanted_topics_with_a_pending_timer_are_found(rig):
    for number in range(10):
        add(rig, 2, number)
    add(rig, 4, 1)
    assert done(rig.timers.search_topics({2, 3})) == {2}
    assert done(rig.timers.search_topics({3, 4, 5})) == {4}
    assert rig.timers.cancel(4, b"4-1") == 0
    assert done(rig.timers.search_topics({3, 4, 5})) == set()


def test_timers_of_an_earlier_process_are_found(rig):
    add(rig, 3, 1)
    rig.sync()
    rig.restart()
    assert done(rig.timers.search_topics({2, 3})) == {3}


def test_a_timer_that_comes_during_the_search_is_found(rig):
    for number in range(20):
        add(rig, 2, number)
    search = rig.timers.search_topics({3, 4})
    search.step()
    add(rig, 3, 1)
    assert done(search) == {3}
    add(rig, 4, 1)
    assert search.found == {3, 4}
    search.close()
    add(rig, 5, 1)
    assert rig.timers._store.watcher is None


def test_a_timer_that_a_full_disk_puts_back_into_another_cell_is_found(rig):
    add(rig, 2, 0, due_ms=rig.now_ms + 1000)
    for number in range(1, 12):
        add(rig, 2, number)
    add(rig, 3, 1, due_ms=rig.now_ms + 1001)  # both leave the table, and come back in each other's cell
    rig.env.clock_ms += 2000
    search = rig.timers.search_topics({3})
    search.step()
    rig.env.fail("write", errno.ENOSPC)
    rig.timers.step()
    rig.env.heal()
    assert rig.fired() == []
    assert done(search) == {3}


def test_a_timer_that_is_relocated_during_the_search_is_found(rig):
    add(rig, 3, 1)
    base = rig.log.for_timers.active_base
    while rig.log.for_timers.active_base == base:
        rig.fill()
    search = rig.timers.search_topics({3})
    steps = rig.timers.relocate(base)
    for _ in steps:
        rig.sync()
    assert done(search) == {3}


def test_a_round_of_a_loop_that_waits_for_disk_space_is_found(rig):
    add(rig, 3, 1, due_ms=rig.now_ms + 1000, gap_ms=50_000, times=3)
    search = rig.timers.search_topics({3})
    rig.advance(1000)
    assert done(search) == {3}


def test_a_record_that_cannot_be_read_makes_the_search_uncertain(rig, monkeypatch):
    add(rig, 3, 1)
    search = rig.timers.search_topics({2})
    assert search.is_certain

    def refuse(address):
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr(rig.timers._store, "read", refuse)
    done(search)
    assert not search.is_certain


def test_timers_that_the_start_could_not_read_exclude_nothing(rig):
    rig.timers._store.damaged.add(0)
    assert rig.timers.search_topics({2}) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_topic_with_a_timer_from_beginning_to_end_is_always_found(rig, seed):
    """Timers fire, are cancelled, loop and come between the steps; topic 3 has one that stays."""
    random, number = Random(seed), 0
    for _ in range(30):
        number += 1
        add(rig, random.choice([2, 4, 5]), number, due_ms=rig.now_ms + random.randint(1, 5000))
        if number == 20:
            add(rig, 3, 0)
    search = rig.timers.search_topics({3, 6})
    is_done = False
    while not is_done:
        for _ in range(random.randint(0, 3)):
            number += 1
            topic_id = random.choice([2, 4, 5])
            add(rig, topic_id, number, due_ms=rig.now_ms + random.randint(1, 5000), gap_ms=random.choice([0, 3000]))
        if random.random() < 0.7:
            rig.timers.cancel(
                random.choice([2, 4, 5]), b"%d-%d" % (random.choice([2, 4, 5]), random.randint(1, number))
            )
        rig.advance(random.randint(0, 900))
        is_done = search.step()
    assert search.found == {3}
