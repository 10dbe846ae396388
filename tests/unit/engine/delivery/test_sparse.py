"""Topics with many queues: a group has cursors only for queues that have, or had, a record."""

import pytest

from engine.delivery import group as group_module
from engine.delivery.policy import KEY, NONE
from engine.delivery.receipt import topic_hash
from engine.delivery.upkeep import IDLE_MS
from engine.errors import UnreadableError
from engine.link.codes import OK, STALE_RECEIPT
from engine.link.pull import LATEST
from tests.unit.engine.delivery._world import FORMS, offsets
from tests.unit.engine.delivery.test_upkeep import Kept

QUEUES = 1_000
BIG = (("orders", QUEUES),)


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def world(request):
    made = Kept(request.param, wait_ms_max=10 * IDLE_MS)
    made.upkeep.step(made.now_ms)
    made.orders = made.topic(queues=QUEUES)
    return made


def places(pieces) -> list[tuple[int, list[int]]]:
    return sorted((piece.queue, list(piece.offsets)) for piece in pieces)


def test_an_unused_queue_costs_a_group_nothing_until_it_has_a_record(world):
    world.store(world.orders, 2, queue=7)
    assert places(world.give(topics=BIG)) == [(7, [0, 1])]
    assert world.delivery.group("g").cursor_count == 1
    world.store(world.orders, 1, queue=999)
    assert places(world.give(topics=BIG)) == [(999, [0])]
    assert world.delivery.group("g").cursor_count == 2


def test_a_waiting_pull_gets_the_first_record_of_any_queue(world):
    answers = []
    world.pull(topics=BIG, wait_ms=1_000, answers=answers)
    world.store(world.orders, 3, queue=500)
    assert places(answers[0][1]) == [(500, [0, 1, 2])]


def test_receipts_settle_wherever_the_message_lies(world):
    for queue in (3, 998):
        world.store(world.orders, 4, queue=queue)
    pieces = world.give(topics=BIG)
    assert world.pull(acks=[piece.ack() for piece in pieces], most=0)[0] == [OK, OK]
    world.store(world.orders, 1, queue=4)
    (late,) = world.give(topics=BIG)
    world.delivery.write_progress()
    world.restart()
    assert world.give(topics=BIG) == []
    assert world.pull(acks=[late.ack()], most=0)[0] == [OK]
    assert world.delivery.group("g").cursor_count == 3


def test_all_subscriptions_of_the_group_get_the_new_cursor(world):
    world.topic("other")
    both = (*BIG, ("other", 1))
    assert world.give(topics=both) == world.give(topics=BIG) == []
    world.store(world.orders, 1, queue=5)
    (piece,) = world.give(topics=both, invisible_ms=100)
    world.turn(500)
    (again,) = world.give(topics=BIG)
    assert (piece.queue, again.queue, again.attempt) == (5, 5, 2)


def test_verbs_that_need_all_queues_get_them(world):
    world.store(world.orders, 1, queue=5)
    world.give(topics=BIG, invisible_ms=100)
    group = world.delivery.group("g")
    assert [cursor.queue for cursor in group.cursors(world.log.topic("orders"), 0)] == list(range(QUEUES))
    assert len(group.load_all()) == group.cursor_count == QUEUES
    world.store(world.orders, 1, queue=6)
    world.turn(500)
    assert places(world.give(topics=BIG)) == [(5, [0]), (6, [0])]


@pytest.mark.parametrize("start", [0, LATEST])
def test_a_group_that_begins_late_misses_nothing_that_comes_after_its_first_pull(world, start):
    world.store(world.orders, 3, queue=1)
    assert len(offsets(world.give(topics=BIG, start=start))) == (3 if start == 0 else 0)
    world.delivery.write_progress()
    world.restart()
    world.store(world.orders, 2, queue=1)
    world.store(world.orders, 2, queue=2)
    assert places(world.give(topics=BIG, start=start)) == [(1, [3, 4]), (2, [0, 1])]


def test_a_topic_that_grows_or_is_made_again_is_followed(world):
    assert world.give(topics=BIG) == []
    world.log.create_topics([("orders@5", QUEUES)])
    world.log.create_topics([("orders@5", QUEUES + 8)])
    more = (("orders@5", QUEUES + 8),)
    world.store(world.orders, 1, queue=QUEUES + 7)
    (old,) = world.give(topics=more)
    assert old.queue == QUEUES + 7
    new = world.log.create_topics([("orders@9", QUEUES)])[0].id
    again = (("orders@9", QUEUES),)
    assert world.give(topics=again) == []
    assert world.pull(acks=[old.ack()], most=0)[0] == [STALE_RECEIPT]
    world.store(new, 1, queue=9)
    assert places(world.give(topics=again)) == [(9, [0])]
    assert list(world.delivery.topic_changes.sparse) == [new]


def test_order_by_key_looks_at_all_queues_from_the_moment_that_it_is_asked_for(world):
    world.store(world.orders, 1, queue=5)
    world.give(topics=BIG, invisible_ms=100)
    world.policies.set(order=KEY)
    world.log.create_topics([("orders", QUEUES + 1)])
    world.turn(500)
    world.store(world.orders, 1, queue=6)
    assert world.delivery.group("g").cursor_count >= QUEUES
    world.policies.set(order=NONE)
    world.turn(5_000)
    assert places(world.give(topics=BIG)) == [(5, [0]), (6, [0])]


def test_an_idle_group_leaves_memory_and_comes_back(world):
    world.store(world.orders, 2, queue=7)
    (piece,) = world.give(topics=BIG)
    world.pull(acks=[piece.ack()], most=0)
    world.rest(IDLE_MS)
    assert (world.delivery.groups, world.delivery._by_queue, world.delivery.topic_changes.sparse) == ({}, {}, {})
    world.store(world.orders, 1, queue=8)
    assert places(world.give(topics=BIG)) == [(8, [0])]


def test_a_cursor_that_cannot_be_made_now_is_made_with_the_next_sign_of_its_queue(world):
    assert world.give(topics=BIG) == []
    bounds = world.log.bounds

    def refused(topic_id, queue):
        raise UnreadableError("the disk cannot read it now")

    world.log.bounds = refused
    world.store(world.orders, 1, queue=7)
    world.log.bounds = bounds
    assert world.delivery.group("g").cursor_count == 0
    world.store(world.orders, 1, queue=7)
    assert offsets(world.give(topics=BIG)) == [0, 1]


def test_a_token_of_a_queue_without_a_record_settles_nothing(world):
    world.store(world.orders, 1, queue=7)
    (piece,) = world.give(topics=BIG)
    cursor = world.delivery.group("g").find(topic_hash("orders"), 900)
    assert (cursor.queue, world.delivery.group("g").find(topic_hash("orders"), QUEUES)) == (900, None)
    assert world.pull(acks=[piece.ack()], most=0)[0] == [OK]


def test_small_topics_have_all_their_cursors(world):
    world.topic("small", queues=group_module.SPARSE_QUEUES_MIN - 1)
    assert world.give(topics=(("small", group_module.SPARSE_QUEUES_MIN - 1),)) == []
    assert world.delivery.group("g").cursor_count == group_module.SPARSE_QUEUES_MIN - 1
    assert world.delivery.topic_changes.sparse == {}
