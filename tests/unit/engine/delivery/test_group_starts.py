"""Groups that begin at `latest`: by the engine's clock, whatever that of the operator's machine shows."""

import pytest

from engine.delivery.group_starts import KEY, GroupStarts
from engine.errors import DiskFullError
from engine.link.pull import AT_TIME
from tests.unit.engine.delivery._world import World, offsets


class Site:
    """An engine whose node goes round the definitions, and an operator whose clock may be another one."""

    def __init__(self):
        self.world = World()
        self.defined, self.topic = self.world.policies, self.world.topic()
        self.start()

    def start(self):
        world = self.world
        self.starts = world.policies = GroupStarts(self.defined, world.log, lambda: world.wall_ms)
        world.restart()

    def turn(self, ms):
        self.world.turn(ms)
        self.starts.step()

    def make_group(self, ahead_ms=0):
        """By an operator whose clock is ahead of the engine's by so much."""
        self.defined.set(start=AT_TIME, start_at_ms=self.world.wall_ms + ahead_ms, is_from_now=True)

    def store(self, count):
        self.world.store(self.topic, count)

    def got(self):
        return offsets(self.world.give(start=AT_TIME))


@pytest.fixture
def site():
    return Site()


@pytest.mark.parametrize("ahead_ms", [0, 20, 20_000, 3 * 3_600_000])
def test_a_group_gets_what_is_stored_after_it_was_made_however_far_the_engines_clock_is_behind(site, ahead_ms):
    site.store(2)
    site.turn(1_000)
    site.turn(50)
    site.make_group(ahead_ms)
    site.turn(50)
    site.store(3)
    site.turn(30_000)
    assert site.got() == [2, 3, 4]


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen first", "pulled first"])
def test_its_first_pull_may_come_before_or_long_after_the_engine_goes_round_the_definitions(site, is_seen):
    site.store(2)
    site.turn(1_000)
    site.turn(50)
    site.make_group(20_000)
    if is_seen:
        site.turn(20)
    assert site.got() == []
    site.store(1)
    assert site.got() == [2]


def test_a_restart_before_the_first_pull_begins_it_at_the_same_place(site):
    site.store(1)
    site.turn(1_000)
    site.make_group(20_000)
    site.turn(50)
    site.store(2)
    site.turn(5_000)
    site.start()
    site.turn(5_000)
    assert site.got() == [1, 2]


def test_a_group_made_while_the_engine_was_away_begins_with_what_its_next_start_stores(site):
    site.store(1)
    site.turn(1_000)
    site.make_group(20_000)
    site.start()
    site.store(2)
    site.turn(1_000)
    assert site.got() == [1, 2]


def test_latest_that_is_set_again_counts_anew(site):
    site.turn(1_000)
    site.make_group(20_000)
    site.turn(50)
    site.store(2)
    site.turn(1_000)
    site.make_group(20_000)
    site.turn(50)
    site.store(1)
    assert site.got() == [2]


def test_while_changes_do_not_come_into_sight_none_counts_as_made_later(site):
    site.turn(1_000)
    site.defined.is_current = False
    site.turn(50)
    site.make_group(40_000)
    site.store(2)
    site.turn(30_000)
    site.defined.is_current = True
    site.turn(50)
    assert site.got() == [0, 1]


def test_clocks_that_agree_leave_no_trace_in_the_log_and_a_future_time_stays_one(site):
    site.turn(1_000)
    site.make_group(0)
    site.turn(50)
    site.defined.set(start_at_ms=site.world.wall_ms + 60_000, is_from_now=False)
    site.store(2)
    assert (site.got(), list(site.world.log.progress(KEY))) == ([], [])


def test_on_a_full_disk_it_begins_all_the_same(site, monkeypatch):
    site.turn(1_000)

    def full(entries):
        raise DiskFullError("full")

    monkeypatch.setattr(site.world.log, "put_progress", full)
    site.make_group(20_000)
    site.turn(50)
    site.store(1)
    site.turn(5_000)
    monkeypatch.undo()
    assert site.got() == [0]
