"""Groups in order over kills: what a client was answered is in the log, and what it perhaps never saw stands briefly."""

import pytest

from common.contract import Message
from engine.delivery import progress_writer
from engine.delivery.policy import KEY, NONE, QUEUE
from engine.errors import DiskFullError
from engine.link.acknowledgement import RETRY
from engine.link.codes import OK
from engine.log.format import pack_record
from tests.unit.engine.delivery._world import FORMS, World, offsets
from tests.unit.engine.delivery.thrift_bytes import encoded

HOUR_MS = 3_600_000
YOUNG_LEASE_MS = 2_048
"""The longest time for which a lease stands that perhaps no client has seen."""


class Ordered(World):
    """One queue, all messages of one key."""

    def __init__(self, form, order):
        super().__init__(form, invisible_ms_max=2 * HOUR_MS)
        self.policies.set(order=order, attempts_max=2)
        self.orders = self.topic()
        self.log.progress_writes = 0

    def send(self, count: int) -> None:
        records = [pack_record(encoded(Message(topic="orders", body=b"b", key="k")))] * count
        self.log.store(self.orders, 0, records, self.wall_ms)
        self.delivery.on_woken(self.log.take_woken(), self.now_ms)

    def take(self, acks=()):
        codes, pieces = self.pull(acks=acks, most=1, invisible_ms=HOUR_MS)
        assert set(codes) <= {OK}
        return pieces

    def kill(self, away_ms: int = 300) -> None:
        """No more progress is written; another process begins."""
        self.wall_ms += away_ms
        self.now_ms = 77
        self.restart()


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def form(request):
    return request.param


@pytest.fixture(params=[KEY, QUEUE], ids=["key", "queue"])
def world(request, form):
    return Ordered(form, request.param)


@pytest.mark.parametrize("with_pull", [True, False])
def test_an_acknowledgement_that_was_answered_holds_nothing_up_after_a_kill(world, with_pull):
    world.send(3)
    (first,) = world.take()
    if with_pull:
        (second,) = world.take([first.ack()])
    else:
        world.pull(acks=[first.ack()], most=0)
    world.kill()
    if with_pull:
        assert world.take() == [], "the second one is with its consumer"
        assert offsets(world.take([second.ack()])) == [2]
    else:
        assert offsets(world.take()) == [1]


def test_a_message_that_its_holder_works_on_is_given_to_no_other_one_while_the_holder_is_quick(world):
    world.send(2)
    (first,) = world.take()
    world.kill()
    world.turn(YOUNG_LEASE_MS - 600)
    assert world.take() == []
    assert offsets(world.take([first.ack()])) == [1]


def test_a_message_whose_answer_was_lost_stands_for_two_seconds_and_loses_no_attempt(world):
    world.send(2)
    assert offsets(world.take()) == [0]
    world.kill()
    assert world.take() == []
    world.turn(YOUNG_LEASE_MS)
    (again,) = world.take()
    assert (offsets([again]), again.attempt) == ([0], 1)


def test_an_interval_that_ends_before_the_answer_has_left_makes_no_difference(world):
    world.send(2)
    assert offsets(world.take()) == [0]
    assert world.delivery.write_progress(256, now_ms=world.now_ms)
    world.kill()
    world.turn(YOUNG_LEASE_MS)
    (again,) = world.take()
    assert (offsets([again]), again.attempt) == ([0], 1)


def test_the_interval_writes_a_young_lease_again_once_it_is_old_and_then_no_more(world):
    world.send(2)
    (first,) = world.take()
    for _ in range(3):
        assert world.delivery.has_progress
        world.delivery.write_progress(256, now_ms=world.now_ms)
        world.turn(progress_writer.YOUNG_MS // 2)
    assert not world.delivery.has_progress
    world.kill()
    world.turn(10 * YOUNG_LEASE_MS)
    assert world.take() == []
    assert offsets(world.take([first.ack()])) == [1]


def test_an_orderly_stop_writes_young_leases_as_they_are(world):
    world.send(2)
    (first,) = world.take()
    world.delivery.write_progress(now_ms=world.now_ms, is_final=True)
    assert not world.delivery.has_progress
    world.kill()
    world.turn(10 * YOUNG_LEASE_MS)
    assert world.take() == []
    assert offsets(world.take([first.ack()])) == [1]


def test_a_pull_that_has_waited_is_written_before_it_is_answered(world):
    answers: list = []
    world.pull(most=1, invisible_ms=HOUR_MS, wait_ms=10_000, answers=answers)
    world.send(2)
    assert len(answers) == 1
    world.kill()
    assert world.take() == []


def test_a_lease_that_is_older_than_an_answer_waits_stands_for_its_whole_time(world):
    world.send(2)
    (first,) = world.take()
    world.turn(progress_writer.YOUNG_MS + 1)
    world.delivery.write_progress(now_ms=world.now_ms)
    world.kill()
    world.turn(10 * YOUNG_LEASE_MS)
    assert world.take() == []
    assert offsets(world.take([first.ack()])) == [1]


def test_the_delay_of_a_retry_is_kept(world):
    world.send(1)
    (first,) = world.take()
    world.pull(acks=[first.ack(verdict=RETRY, delay_ms=HOUR_MS)], most=0)
    world.kill()
    world.turn(HOUR_MS - 1_000)
    assert world.take() == []
    world.turn(1_000)
    assert world.take()[0].attempt == 2


def test_two_kills_forget_no_more_than_one(world):
    world.send(3)
    (first,) = world.take()
    world.kill()
    (second,) = world.take([first.ack()])
    world.kill()
    assert offsets(world.take([second.ack()])) == [2]


@pytest.mark.parametrize("order", [NONE, KEY])
def test_a_group_without_an_order_writes_nothing_at_once_and_one_with_it_a_value_per_pull(form, order):
    world = Ordered(form, order)
    world.send(20)
    acks = []
    for _ in range(10):
        acks = [piece.ack() for piece in world.take(acks)]
    assert world.log.progress_writes == (0 if order == NONE else 20), (
        "the queue's progress, and the number of the lease"
    )


def test_what_is_too_much_to_write_at_once_is_written_with_the_next_pull_or_by_the_interval(world, monkeypatch):
    monkeypatch.setattr(progress_writer, "AT_ONCE_BYTES_PER_MS", 0)
    world.send(4)
    world.delivery._progress._room = 1
    (first,) = world.take()
    written = world.log.progress_writes
    (second,) = world.take([first.ack()])
    assert world.log.progress_writes == written == 2
    monkeypatch.setattr(progress_writer, "AT_ONCE_BYTES_PER_MS", 100)
    world.turn(1)
    world.take([second.ack()])
    assert world.log.progress_writes == written + 2
    world.kill()
    assert world.take() == []
    world.turn(YOUNG_LEASE_MS)
    assert offsets(world.take()) == [2]


def test_a_disk_that_is_full_refuses_no_acknowledgement_and_the_interval_tries_again(world, monkeypatch):
    world.send(2)
    (first,) = world.take()
    put = world.log.put_progress
    monkeypatch.setattr(world.delivery._progress._store, "put_progress", full)
    (second,) = world.take([first.ack()])
    monkeypatch.setattr(world.delivery._progress._store, "put_progress", put)
    world.delivery.write_progress(now_ms=world.now_ms)
    world.kill()
    assert world.take([second.ack()]) == []


def full(entries):
    raise DiskFullError("no room")
