"""A restart of the engine: leases, delays and receipts go on; wall clocks that step change nothing."""

import pytest

from engine.delivery import leases
from engine.delivery.leases import LeaseClock
from engine.delivery.policy import UNREAD
from engine.errors import UnreadableError
from engine.link.acknowledgement import EXTEND, REJECT, RELEASE, RETRY
from engine.link.codes import OK, STALE_RECEIPT, UNAVAILABLE
from tests.unit.engine.delivery._world import FORMS, WALL0, World


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def world(request):
    made = World(request.param)
    made.orders = made.topic()
    return made


def stop(world, away_ms: int = 500) -> None:
    """An orderly stop, and a start some time later: the monotonic clock of another boot, the wall clock goes on."""
    world.delivery.write_progress(now_ms=world.now_ms, is_final=True)
    boot(world, away_ms)


def boot(world, away_ms: int, step_ms: int = 0) -> None:
    world.wall_ms += away_ms + step_ms
    world.now_ms = 77
    world.restart()


def test_a_lease_survives_a_restart_and_its_receipt_counts(world):
    world.store(world.orders, 4)
    (piece,) = world.give(invisible_ms=30_000)
    stop(world)
    assert world.give() == []
    assert world.pull(acks=[piece.ack(0, 3)], most=0)[0] == [OK]
    world.turn(29_000)
    assert world.give() == []
    world.turn(1_000)
    (again,) = world.give()
    assert (list(again.offsets), again.attempt) == ([3], 2)


def test_the_delay_of_a_retry_survives_restarts_and_is_never_cut_short(world):
    world.store(world.orders, 1)
    (piece,) = world.give()
    assert world.pull(acks=[piece.ack(verdict=RETRY, delay_ms=3_600_000)], most=0)[0] == [OK]
    for _ in range(5):
        world.turn(600_000)
        stop(world, 100_000)
        assert world.give() == []
    world.turn(99_000)
    assert world.give() == []
    world.turn(3_000)
    assert world.give()[0].attempt == 2


def test_an_extended_lease_survives_a_restart_and_can_be_extended_after_it(world):
    world.store(world.orders, 1)
    (piece,) = world.give(invisible_ms=1_000)
    extend = piece.ack(verdict=EXTEND, delay_ms=60_000)
    assert world.pull(acks=[extend], most=0)[0] == [OK]
    stop(world)
    world.turn(50_000)
    assert world.give() == []
    assert world.pull(acks=[extend], most=0)[0] == [OK]
    stop(world)
    world.turn(50_000)
    assert world.give() == []
    assert world.pull(acks=[piece.ack()], most=0)[0] == [OK]


def test_a_process_that_is_killed_loses_no_lease_that_was_written(world):
    world.store(world.orders, 4)
    (old,) = world.give(most=2)
    world.delivery.write_progress()
    world.give(most=2)
    boot(world, 1_000)
    (piece,) = world.give()
    assert (list(piece.offsets), piece.attempt) == ([2, 3], 1)
    assert world.pull(acks=[old.ack()], most=0)[0] == [OK]


def test_a_receipt_of_a_lease_that_a_kill_has_taken_counts_once_the_groups_definition_is_read(world):
    """Until then no topic of the group is loaded. A client that heard "stale" would not acknowledge again."""
    world.store(world.orders, 2)
    (old,) = world.give(most=1)
    boot(world, 1_000)
    world.policies.set(unread="not read yet")
    assert world.pull(acks=[old.ack()]) == ([UNAVAILABLE], [])
    world.policies.set(unread="")
    codes, (piece,) = world.pull(acks=[old.ack()])
    assert (codes, list(piece.offsets)) == ([OK], [1])


def test_a_short_delay_is_not_cut_by_two_quick_kills(world):
    world.store(world.orders, 1)
    (piece,) = world.give()
    world.delivery.write_progress()
    boot(world, 10)
    assert world.pull(acks=[piece.ack(verdict=RETRY, delay_ms=1_000)], most=0)[0] == [OK]
    world.delivery.write_progress()
    boot(world, 10)
    assert world.give() == []
    assert world.pull(acks=[piece.ack(verdict=RELEASE)], most=0)[0] == [OK]


def test_the_attempts_of_a_killed_process_go_on_as_far_as_they_were_written(world):
    world.store(world.orders, 1)
    world.give(invisible_ms=1_000)
    world.delivery.write_progress()
    boot(world, 5_000)
    assert world.give()[0].attempt == 2


def test_the_lease_of_an_earlier_holder_neither_ends_nor_extends_the_one_that_runs(world):
    world.store(world.orders, 1)
    (first,) = world.give(invisible_ms=1_000)
    world.turn(1_020)
    (second,) = world.give()
    assert second.attempt == 2
    stop(world)
    for verdict in (RETRY, EXTEND, REJECT, RELEASE):
        assert world.pull(acks=[first.ack(verdict=verdict, delay_ms=0)], most=0)[0] == [STALE_RECEIPT]
    assert world.give() == []
    assert world.pull(acks=[second.ack()], most=0)[0] == [OK]


def test_what_a_proxy_could_not_hand_over_is_released_after_a_restart_too(world):
    world.store(world.orders, 3)
    (piece,) = world.give()
    stop(world)
    release = piece.ack(verdict=RELEASE)
    assert world.pull(acks=[release, release], most=0)[0] == [OK, STALE_RECEIPT]
    assert [each.attempt for each in world.give()] == [1]


def test_a_last_attempt_is_buried_when_its_lease_ends_and_not_at_the_restart(world):
    world.policies.set(attempts_max=1)
    world.store(world.orders, 1)
    world.give(invisible_ms=20_000)
    stop(world)
    world.give()
    world.turn(18_000)
    assert world.delivery.counts.dead_letters == 0
    world.turn(2_000)
    assert world.delivery.counts.dead_letters == 1


def test_a_last_attempt_whose_lease_ended_before_the_group_was_loaded_is_not_delivered_once_more(world):
    world.policies.set(attempts_max=1)
    world.store(world.orders, 1)
    world.give(invisible_ms=1_000)
    stop(world)
    world.turn(20_000)
    assert world.give() == []
    world.turn(40_000)
    assert world.delivery.counts.dead_letters == 1


def test_a_last_attempt_is_buried_once_when_a_queue_cannot_be_read_at_the_first_pull(world, monkeypatch):
    topics = (("orders", 2),)
    world.log.create_topics(topics)
    world.policies.set(attempts_max=1)
    world.store(world.orders, 1)
    world.give(topics=topics, invisible_ms=1_000)
    stop(world)
    bounds = world.log.bounds

    def refuse(topic_id, queue):
        if queue == 1:
            raise UnreadableError("the view cannot be read")
        return bounds(topic_id, queue)

    with monkeypatch.context() as patch:
        patch.setattr(world.log, "bounds", refuse)
        with pytest.raises(UnreadableError):
            world.give(topics=topics)
    world.turn(20_000)
    assert world.delivery.counts.dead_letters == 0
    world.give(topics=topics)
    world.turn(40_000)
    assert world.delivery.counts.dead_letters == 1


def test_many_messages_leased_one_by_one_survive_without_a_record_for_each(world):
    world.store(world.orders, 500)
    pieces = [world.give(most=1)[0] for _ in range(500)]
    acks = [piece.ack() for piece in pieces]
    world.pull(acks=acks[::2], most=0)
    stop(world)
    (cursor,) = world.delivery.group("g").load_all()
    assert cursor.in_flight.messages == 250
    assert world.give() == []
    assert world.pull(acks=acks[1::2], most=0)[0] == [OK] * 250
    assert cursor.in_flight.messages == 0


def test_messages_of_one_lease_cost_few_bytes_of_progress(world):
    world.store(world.orders, 500)
    for _ in range(500):
        world.give(most=1)
    world.delivery.write_progress()
    assert len(value_of(world)) < 30


def test_progress_without_a_lease_has_the_form_that_earlier_versions_know(world):
    world.store(world.orders, 5)
    world.pull(acks=[world.give()[0].ack()], most=0)
    world.delivery.write_progress()
    assert value_of(world) == bytes([1, 0, 5, 0, 0])


def value_of(world) -> bytes:
    (cursor,) = world.delivery.group("g").load_all()
    return dict(world.log.progress())[cursor.key]


def test_a_spent_message_that_was_loaded_before_the_configuration_was_read_is_not_delivered_once_more(world):
    world.store(world.orders, 2)
    (piece,) = world.give(invisible_ms=1_000)
    world.delivery.write_progress()
    policies, world.policies = world.policies, Unread()
    boot(world, 5_000)
    assert world.pull(acks=[piece.ack(0, 1)], most=0)[0] == [OK]
    policies.set(attempts_max=1)
    world.policies.generation, world.policies.of = 1, policies.of
    assert world.give() == []
    world.turn(31_000)
    assert world.give() == []
    assert world.delivery.counts.dead_letters == 1


class Unread:
    """Policies of an engine that has not read its configuration."""

    generation = 0

    def of(self, group):
        return UNREAD


# -- clocks


@pytest.mark.parametrize("step_ms", [-600_000, -1, 600_000])
def test_a_group_that_was_reset_gets_and_acknowledges_its_messages_whatever_the_wall_clock_does(world, step_ms):
    world.store(world.orders, 5)
    world.give()
    group = world.delivery.group("g")
    world.delivery.move(group, group.load_all()[0], 0, world.now_ms)
    world.delivery.write_progress()
    boot(world, 1_000, step_ms)
    for _ in range(5):
        (piece,) = world.give(most=1)
        assert world.pull(acks=[piece.ack()], most=0)[0] == [OK]
    assert world.give() == []


def test_leases_begin_above_a_floor_that_is_found_without_the_clocks_state(world):
    world.store(world.orders, 1)
    group = world.delivery.group("g")
    world.give()
    world.delivery.move(group, group.load_all()[0], 0, world.now_ms)
    world.delivery.write_progress()
    world.log.put_progress([(leases.KEY, b"")])
    boot(world, 0, -600_000)
    (piece,) = world.give()
    assert world.pull(acks=[piece.ack()], most=0)[0] == [OK]


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_steps_while_the_engine_runs_ends_no_lease_and_refuses_no_receipt(world, step_ms):
    world.store(world.orders, 4)
    (before,) = world.give(most=2, invisible_ms=60_000)
    world.wall_ms += step_ms
    (after,) = world.give(most=2, invisible_ms=60_000)
    stop(world)
    assert world.give() == []
    world.turn(55_000)
    assert world.give() == []
    assert world.pull(acks=[before.ack(), after.ack()], most=0)[0] == [OK, OK]


def test_a_group_that_is_loaded_after_the_first_lease_of_a_start_makes_no_receipt_stale(world):
    world.store(world.orders, 2)
    world.give(group="earlier")
    stop(world, away_ms=0)
    (piece,) = world.give(group="first")
    world.give(group="earlier")
    world.wall_ms -= 5_400_000
    assert world.pull(acks=[piece.ack()], most=0, group="first")[0] == [OK]


def test_a_wall_clock_that_was_set_back_while_the_engine_was_away_lengthens_a_lease_by_no_more_than_the_absence(world):
    world.store(world.orders, 1)
    world.give(invisible_ms=10_000)
    world.delivery.write_progress(now_ms=world.now_ms, is_final=True)
    boot(world, 3_000, -3_600_000)
    assert world.give() == []
    world.turn(10_300)
    assert world.give()[0].attempt == 2


@pytest.mark.parametrize("step_ms", [-45_000, 45_000, 3 * 3_600_000])
def test_a_new_master_that_has_followed_goes_on_with_the_leases_whatever_its_wall_clock_shows(world, step_ms):
    world.store(world.orders, 2)
    held, _ = world.give(most=1, invisible_ms=8_000), world.give(most=1, invisible_ms=8_000)
    world.delivery.write_progress(now_ms=world.now_ms + 1_000)
    world.log.since_leases_ms = lambda: 1_500
    boot(world, 1_500, step_ms)
    assert world.give() == []
    assert world.pull(acks=[held[0].ack()], most=0)[0] == [OK]
    world.turn(8_000 - 1_000 - 1_500 - 300)
    assert world.give() == []
    world.turn(600)
    assert [piece.attempt for piece in world.give()] == [2]


def test_lease_time_runs_by_the_monotonic_clock_and_goes_on_after_a_restart():
    wall = [WALL0]
    clock = LeaseClock(lambda: wall[0])
    clock.turn(1_000)
    first = clock.next_lease()
    assert (first >> 20, clock.created_ms(first)) == (WALL0, WALL0)
    wall[0] += 5_000_000
    clock.turn(3_000)
    assert clock.next_lease() >> 20 == WALL0 + 2_000
    kept = clock.stored(is_final=True)
    wall[0] += 10_000
    again = LeaseClock(lambda: wall[0], kept)
    again.turn(50)
    assert again.next_lease() >> 20 == WALL0 + 12_000
    assert again.is_foreign(clock.last)


@pytest.mark.parametrize("step_ms", [-1_000_000, -50, 0])
def test_a_killed_process_may_have_used_numbers_that_the_log_misses_and_they_are_not_used_again(step_ms):
    wall = [WALL0]
    clock = LeaseClock(lambda: wall[0])
    clock.turn(0)
    clock.next_lease()
    kept = clock.stored()
    clock.turn(1_900)
    unwritten = clock.next_lease()
    wall[0] += step_ms
    again = LeaseClock(lambda: wall[0], kept)
    again.turn(0)
    assert again.next_lease() > unwritten
    assert again.is_foreign(unwritten)


def test_the_clocks_state_is_stored_when_leases_were_made_and_each_minute_while_some_run(world):
    world.store(world.orders, 1)
    world.give(invisible_ms=600_000)
    assert world.delivery.has_progress
    world.delivery.write_progress()
    assert not world.delivery.has_progress
    world.turn(60_001)
    assert world.delivery.has_progress
    world.delivery.write_progress()
    assert not world.delivery.has_progress
