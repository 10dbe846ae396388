"""Groups as operators see them: where a new one begins, paused ones, and both again after a restart."""

import pytest

from tests.unit.engine.delivery._world import FORMS, World, offsets


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def world(request):
    return World(request.param)


def test_a_new_group_may_begin_at_a_moment(world):
    topic = world.topic()
    world.store(topic, 3)
    world.turn(1_000)
    world.policies.set(start_at_ms=world.wall_ms)
    world.store(topic, 2)
    assert offsets(world.give(start=2)) == [3, 4]


def test_where_it_began_at_a_moment_outlives_a_restart(world):
    topic = world.topic()
    world.store(topic, 3)
    world.turn(1_000)
    world.policies.set(start_at_ms=world.wall_ms)
    world.pull(start=2, most=0)
    world.restart()
    world.store(topic, 1)
    assert offsets(world.give(start=0)) == [3]


def test_a_group_that_exists_does_not_begin_anew(world):
    topic = world.topic()
    world.store(topic, 2)
    world.give(most=1)
    world.policies.set(start_at_ms=world.wall_ms + 1_000)
    assert offsets(world.give(start=2)) == [1]


def test_a_paused_group_is_given_nothing_and_its_acknowledgements_count(world):
    topic = world.topic()
    world.store(topic, 4)
    (piece,) = world.give(most=2)
    world.policies.set(paused=True)
    assert world.pull(acks=[piece.ack()]) == ([0], [])
    world.store(topic, 1)
    assert world.give() == []
    world.policies.set(paused=False)
    assert offsets(world.give()) == [2, 3, 4]


def test_pulls_that_wait_when_a_group_is_paused_are_answered_empty(world):
    topic = world.topic()
    answers = []
    world.pull(wait_ms=10_000, answers=answers)
    world.policies.set(paused=True)
    world.turn(20)
    assert answers == [([], [])]
    assert world.delivery.parked == 0
    world.store(topic, 1)
    assert len(answers) == 1


def test_a_pull_of_a_paused_group_waits_and_is_served_when_the_group_is_resumed(world):
    topic = world.topic()
    world.store(topic, 2)
    world.policies.set(paused=True)
    world.turn(20)
    answers = []
    world.pull(wait_ms=10_000, answers=answers)
    world.store(topic, 1)
    world.turn(100)
    assert answers == []
    world.policies.set(paused=False)
    world.turn(20)
    assert [offsets(pieces) for _, pieces in answers] == [[0, 1, 2]]


def test_a_pull_of_a_paused_group_ends_empty_at_its_time(world):
    world.store(world.topic(), 2)
    world.policies.set(paused=True)
    answers = []
    world.pull(wait_ms=500, answers=answers)
    world.turn(600)
    assert answers == [([], [])]


def test_leases_run_out_in_a_paused_group_and_are_handed_out_when_it_is_resumed(world):
    world.store(world.topic(), 1)
    world.give(invisible_ms=1_000)
    world.policies.set(paused=True)
    world.turn(5_000)
    assert world.give() == []
    world.policies.set(paused=False)
    assert [piece.attempt for piece in world.give()] == [2]
