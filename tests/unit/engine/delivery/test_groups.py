"""Groups as operators see them: where a new one begins, paused ones, and both again after a restart."""

from unittest.mock import Mock

import pytest

from engine.delivery import progress
from engine.errors import DiskFullError
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


def test_the_first_pull_after_a_pause_waits_and_those_of_before_are_answered(world):
    world.store(world.topic(), 1)
    before, after = [], []
    assert offsets(world.give()) == [0]
    world.pull(wait_ms=10_000, answers=before)
    world.policies.set(paused=True)  # no tick in between: an idle engine has none
    world.pull(wait_ms=10_000, answers=after)
    world.turn(200)
    assert (before, after) == ([([], [])], [])
    world.policies.set(paused=False)
    world.store(1, 1)
    world.turn(20)
    assert [offsets(pieces) for _, pieces in after] == [[1]]


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


def test_acknowledgements_count_when_a_topic_of_the_pull_cannot_be_created(world, monkeypatch):
    world.store(world.topic(), 2)
    (piece,) = world.give()
    monkeypatch.setattr(world.log, "create_topics", Mock(side_effect=DiskFullError("the disk is full")))
    with pytest.raises(DiskFullError):
        world.pull(topics=(("orders", 1), ("new", 1)), acks=[piece.ack()])
    monkeypatch.undo()
    world.turn(20_000)
    assert world.give() == []


def test_a_topic_made_again_has_no_messages_progress_or_receipts_of_the_old_one(world):
    old = world.topic("orders@100")
    world.store(old, 3)
    first, second = (("orders@100", 1),), (("orders@200", 1),)
    (piece,) = world.give(topics=first, most=2)
    waiting = []
    world.pull(topics=second, group="other", wait_ms=1_000, answers=waiting)  # another group's pull makes it anew
    assert world.give(topics=second) == []
    new = world.log.topic("orders").id
    assert new != old
    world.store(new, 2)
    assert [offsets(pieces) for _, pieces in waiting] == [[0, 1]]
    (again,) = world.give(topics=second)
    assert (offsets([again]), again.attempt) == ([0, 1], 1)
    assert world.pull(acks=[piece.ack()], most=0)[0] == [106]
    assert world.pull(acks=[again.ack()], most=0)[0] == [0]
    world.delivery.write_progress()
    world.restart()
    assert world.pull(acks=[piece.ack()], most=0)[0] == [106]
    assert [each["topic_id"] for each in stored_progress(world)] in ([new], [new, new])


def test_a_pull_of_a_replaced_definition_gives_the_other_topics(world):
    world.topic("orders@200")
    other = world.topic("other")
    world.store(other, 1)
    assert offsets(world.give(topics=(("orders@100", 1), ("other", 1)))) == [0]


def stored_progress(world):
    found = (progress.split_key(raw) for raw, _ in world.log.progress(b"g"))
    return [{"group": parts[0], "topic_id": parts[1]} for parts in found if parts is not None]
