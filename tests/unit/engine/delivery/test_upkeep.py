"""Groups that nobody uses: idle ones leave memory, unused ones leave the log, and no clock decides."""

from unittest.mock import Mock

import pytest

from engine.delivery import progress, upkeep
from engine.delivery.lost_turns import LostTurns
from engine.delivery.receipt import topic_hash
from engine.delivery.upkeep import CROWDED_IDLE_MS, HOUR_MS, IDLE_MS, GroupUpkeep
from engine.errors import DiskFullError
from engine.link.codes import STALE_RECEIPT
from tests.unit.engine.delivery._world import FORMS, World, offsets


class Kept(World):
    """A world whose groups are kept up; a day of running before an unused group expires."""

    def restart(self):
        super().restart()
        self.upkeep = GroupUpkeep(
            self.log,
            self.policies,
            self.delivery.groups,
            self.delivery.unload,
            self.delivery.creations,
            24,
            LostTurns(self.log, self.delivery.groups, self.delivery.on_woken),
        )

    def rest(self, ms):
        """Let time pass, all progress written."""
        self.turn(ms)
        self.delivery.write_progress()
        for _ in range(100):
            self.upkeep.step(self.now_ms)

    def run_hours(self, hours):
        for _ in range(hours):
            self.turn(HOUR_MS)
            self.delivery.write_progress()
            for _ in range(20):
                self.upkeep.step(self.now_ms)


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def world(request):
    made = Kept(request.param, wait_ms_max=10 * IDLE_MS)
    made.upkeep.step(made.now_ms)
    return made


def test_an_idle_group_leaves_memory_and_goes_on_where_it_was(world):
    orders = world.topic()
    world.store(orders, 4)
    (piece,) = world.give(most=3)
    world.pull(acks=[piece.ack(0, 2)], most=0)
    world.rest(IDLE_MS)
    assert world.delivery.groups == {}
    assert world.delivery._by_queue == {}
    assert [(offsets([each]), each.attempt) for each in world.give()] == [([2], 2), ([3], 1)]


def test_a_group_that_holds_nothing_leaves_no_trace(world):
    world.topic()
    before = list(world.log.progress())
    assert world.give(group="typo") == []
    world.rest(IDLE_MS)
    assert world.delivery.groups == {}
    assert list(world.log.progress()) == before


@pytest.mark.parametrize("use", ["a waiting pull", "a lease", "a pull a moment ago"])
def test_a_group_in_use_stays(world, use):
    world.store(world.topic(), 1)
    if use == "a waiting pull":
        world.pull(group="g", topics=(("other", 1),), wait_ms=2 * IDLE_MS, answers=[])
    else:
        world.give(invisible_ms=2 * IDLE_MS if use == "a lease" else 1)
    world.rest(IDLE_MS - (use == "a pull a moment ago"))
    assert list(world.delivery.groups) == ["g"]


def test_progress_that_is_not_in_the_log_keeps_its_group(world):
    world.store(world.topic(), 1)
    world.give(invisible_ms=1)
    world.turn(IDLE_MS)
    world.upkeep.step(world.now_ms)
    world.upkeep.step(world.now_ms)
    assert list(world.delivery.groups) == ["g"]
    world.rest(0)
    assert world.delivery.groups == {}


def test_pulls_under_fresh_names_cost_bounded_memory(world, monkeypatch):
    monkeypatch.setattr(upkeep, "CURSORS_MAX", 100)
    world.store(world.topic(queues=8), 1)
    most = 0
    for number in range(600):
        world.give(group=f"worker-{number}", topics=(("orders", 8),), invisible_ms=1)
        if number % 10 == 9:
            world.rest(CROWDED_IDLE_MS // 4)
        most = max(most, len(world.delivery.groups))
    assert most <= 80  # those of a second, and those of a round; 600 without a bound


def test_a_group_that_nobody_uses_is_forgotten_with_its_progress(world):
    orders = world.topic()
    world.store(orders, 2)
    (piece,) = world.give()
    world.pull(acks=[piece.ack()], most=0)
    world.run_hours(23)
    assert list(world.upkeep.unused(20)) == ["g"]
    assert list(world.upkeep.unused(24)) == []
    world.restart()
    world.run_hours(4)
    assert world.upkeep.expired == 1
    assert list(world.log.progress(b"g")) == []
    assert offsets(world.give()) == [0, 1]


def test_a_use_begins_the_time_again(world):
    world.store(world.topic(), 2)
    (piece,) = world.give(most=1)
    world.pull(acks=[piece.ack()], most=0)
    for _ in range(4):
        world.run_hours(20)
        assert world.give(invisible_ms=1) != []
    assert world.upkeep.expired == 0


def test_a_group_with_a_definition_is_never_forgotten(world):
    world.store(world.topic(), 1)
    (piece,) = world.give()
    world.pull(acks=[piece.ack()], most=0)
    world.policies.set(attempts_max=3)
    world.run_hours(60)
    assert world.upkeep.expired == 0
    assert world.give() == []


def test_a_wall_clock_that_steps_far_ahead_forgets_nothing(world):
    world.store(world.topic(), 1)
    (piece,) = world.give()
    world.pull(acks=[piece.ack()], most=0)
    world.run_hours(2)
    world.wall_ms += 3650 * 24 * HOUR_MS
    world.run_hours(2)
    assert world.upkeep.expired == 0
    assert world.give() == []


def test_a_full_disk_ends_the_hours_round_and_nothing_else(world, monkeypatch):
    world.store(world.topic(), 1)
    (piece,) = world.give()
    world.pull(acks=[piece.ack()], most=0)
    world.rest(IDLE_MS)
    monkeypatch.setattr(world.log, "put_progress", Mock(side_effect=DiskFullError("the disk is full")))
    world.turn(HOUR_MS)
    assert world.upkeep.step(world.now_ms) > world.now_ms
    assert world.upkeep.step(world.now_ms) > world.now_ms
    monkeypatch.undo()
    world.run_hours(30)
    assert world.upkeep.expired == 1


@pytest.mark.parametrize("expire_hours", [0, 24])
def test_progress_in_a_topic_that_is_made_again_does_not_survive_in_a_group_that_is_not_loaded(world, expire_hours):
    world.upkeep.expire_hours = expire_hours
    old = world.log.create_topics([("orders@100", 2)])[0].id
    other = world.topic("other")
    for topic_id in (old, other):
        world.store(topic_id, 3)
    scope = {"topics": (("orders@100", 2), ("other", 1))}
    pieces = world.give(**scope)
    world.pull(acks=[piece.ack() for piece in pieces[:1]], most=0)
    world.rest(IDLE_MS)
    assert world.delivery.groups == {}
    new = world.log.create_topics([("orders@200", 2)])[0].id
    world.store(new, 1)
    world.run_hours(2)
    assert {progress.split_key(raw)[1] for raw, _ in world.log.progress(b"g")} == {other}
    again = world.give(topics=(("orders@200", 2),))
    assert [(list(piece.offsets), piece.attempt) for piece in again] == [([0], 1)]
    stale, _ = world.pull(acks=[piece.ack() for piece in pieces], most=0, topics=(("orders@200", 2), ("other", 1)))
    assert STALE_RECEIPT in stale
    assert world.delivery.group("g").find(topic_hash("orders"), 0).in_flight.messages == 1


def test_a_topic_that_is_made_again_leaves_no_record_of_the_old_one_beside_its_messages(world):
    world.log.create_topics([("orders@100", 1)])
    world.log.create_topics([("orders@100", 4)])
    world.log.create_topics([("orders@200", 1)])
    new = world.log.create_topics([("orders@300", 1)])[0].id
    assert [raw for raw, _ in world.log.progress(b"\0grown")] == []
    assert [raw for raw, _ in world.log.progress(progress.FLOOR_PREFIX)] == [progress.floor_entry(new, 0)[0]]


def test_the_floor_of_a_topic_that_is_made_again_is_in_the_log_before_the_topic(world):
    world.log.create_topics([("orders@100", 1)])
    seen = []
    world.log.growth.on_replacing(
        lambda old, new_id: seen.append(
            (progress.stored_floor(world.log, new_id) > 0, world.log.topic("orders").id == old.id)
        )
    )
    world.log.create_topics([("orders@200", 1)])
    assert seen == [(True, True)]
