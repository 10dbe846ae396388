"""Cursors that have lost their turn get it back, are counted, and no other one is."""

import random

import pytest

from engine.delivery.lost_turns import SAME_MS, LostTurns
from engine.errors import UnreadableError
from engine.link.acknowledgement import DONE, RETRY
from engine.log.format import pack_record
from tests.unit.engine.delivery._world import FORMS, World, offsets


class Checked(World):
    """A world whose turns are checked."""

    def restart(self):
        super().restart()
        self.turns = LostTurns(self.log, self.delivery.groups, self.delivery.on_woken)

    def lose(self, topic_id: int, count: int, queue: int = 0) -> None:
        """Store messages whose wake-up is lost."""
        self.log.store(topic_id, queue, [pack_record(b"x" * 5)] * count, self.wall_ms)
        self.log.take_woken()

    def look(self, times: int = 4) -> int:
        """Let time pass with checks; returns the number of turns found lost so far."""
        for _ in range(times):
            self.turn(SAME_MS)
            self.turns.step(self.now_ms)
        return self.turns.found


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def world(request):
    return Checked(request.param, wait_ms_max=1_000_000, invisible_ms_max=1_000_000, in_flight_max=8)


def waits(world, **options) -> list:
    answers: list = []
    world.pull(answers=answers, wait_ms=900_000, invisible_ms=900_000, **options)
    return answers


def test_a_queue_whose_wake_up_was_lost_is_given_within_seconds_and_counted(world):
    orders = world.topic()
    answers = waits(world)
    world.lose(orders, 3)
    world.store(orders, 2)  # a later append does not make it good
    assert answers == []
    assert world.look() == 1
    assert offsets(answers[0][1]) == [0, 1, 2, 3, 4]


def test_it_gets_its_turn_back_while_no_pull_waits(world):
    orders = world.topic()
    assert world.give() == []
    world.lose(orders, 2)
    assert world.look() == 1 and world.look() == 1
    assert offsets(world.give()) == [0, 1]


@pytest.mark.parametrize("held", ["a bound", "a lease", "an order", "a pause", "an empty queue", "a bad disk"])
def test_a_queue_that_may_give_nothing_has_lost_nothing(world, held, monkeypatch):
    orders = world.topic()
    if held == "an order":
        world.policies.set(order=1)
    if held != "an empty queue":
        world.store(orders, 20)
    world.pull(invisible_ms=900_000, most=1 if held == "a lease" else 8)
    if held == "a lease":
        world.pull(most=19, invisible_ms=900_000)
    waits(world)
    if held == "a pause":
        world.policies.set(paused=True)
        world.lose(orders, 1)
    if held == "a bad disk":
        world.lose(orders, 1)
        monkeypatch.setattr(world.log, "end", lambda *queue: (_ for _ in ()).throw(UnreadableError("not now")))
    assert world.look() == 0


def test_random_courses_of_wake_ups_lose_no_turn_and_a_lost_one_is_found_after_each(world):
    chance = random.Random(8)
    orders, topics = world.topic(queues=3), (("orders", 3),)
    given: list = []
    for number in range(300):
        match chance.randrange(5):
            case 0:
                world.store(orders, chance.randint(1, 4), chance.randrange(3))
            case 1:
                given += world.give(topics=topics, most=chance.randint(1, 6))
            case 2 if given:
                piece = given.pop(chance.randrange(len(given)))
                world.pull(acks=[piece.ack(verdict=chance.choice([DONE, RETRY]), delay_ms=500)], most=0)
            case 3:
                world.turn(chance.randrange(1, 400))
                world.turns.step(world.now_ms)
            case 4:
                world.pull(topics=topics, answers=[], wait_ms=chance.randrange(1, 2_000))
        if number % 100 == 99:
            assert world.look() == 0
    while pieces := world.give(group="other", topics=topics):
        world.pull(group="other", acks=[each.ack() for each in pieces], most=0)
    for queue in range(3):
        world.lose(orders, 1, queue)
    assert world.look() >= 3
    assert len(world.give(group="other", topics=topics)) == 3
