"""Leases, acknowledgements, redelivery, long poll, fairness, bounds."""

import pytest

from common.limited_log import LimitedLog
from engine.delivery.progress import split_key
from engine.delivery.pull import AckRange, PullRequest
from engine.errors import CorruptionError
from engine.link.acknowledgement import EXTEND, RELEASE, RETRY
from engine.link.codes import INVALID, OK, STALE_RECEIPT
from engine.link.integers import U16
from engine.link.pull import LATEST
from tests.unit.engine.delivery._world import FORMS, World, offsets


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def form(request):
    return request.param


@pytest.fixture
def world(form):
    made = World(form)
    made.orders = made.topic()
    return made


@pytest.fixture
def damaged(world, monkeypatch):
    """`damaged(end)`: the messages below `end` of topic orders cannot be read."""

    def damage(end: int) -> None:
        sound = world.log.read

        def read(topic_id, queue, offset, *bounds):
            if offset < end:
                raise CorruptionError("a.seg", 100, 48, "it does not verify", end)
            return sound(topic_id, queue, offset, *bounds)

        monkeypatch.setattr(world.log, "read", read)
        monkeypatch.setattr(LimitedLog, "kinds", {})

    return damage


def test_a_group_passes_over_what_is_damaged_and_its_line_names_the_group(world, damaged, caplog):
    world.store(world.orders, 4)
    damaged(2)
    assert offsets(world.give()) == [2, 3]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("group=g topic=orders queue=0 offset=0: cannot be read, continuing at offset 2: ")


def test_a_group_passes_over_many_damaged_messages_in_one_step(world, damaged, caplog):
    world.store(world.orders, 100)
    damaged(90)
    assert offsets(world.give(most=2)) == [90, 91]
    assert len(caplog.records) == 1


def test_a_pull_gets_a_run_once_and_the_next_pull_the_rest(world):
    world.store(world.orders, 10)
    assert offsets(world.give(most=4)) == [0, 1, 2, 3]
    assert offsets(world.give(most=100)) == [4, 5, 6, 7, 8, 9]
    assert world.give() == []


def test_an_unacknowledged_lease_comes_back_with_the_next_attempt_within_a_second(world):
    world.store(world.orders, 3)
    assert world.give(invisible_ms=5_000)[0].attempt == 1
    world.turn(4_999)
    assert world.give() == []
    world.turn(1_000)
    (piece,) = world.give()
    assert (list(piece.offsets), piece.attempt) == ([0, 1, 2], 2)


def test_what_was_acknowledged_inside_a_lease_does_not_come_back(world):
    world.store(world.orders, 5)
    (piece,) = world.give()
    assert world.pull(acks=[piece.ack(1, 1), piece.ack(3, 1)], most=0) == ([OK, OK], [])
    world.turn(11_000)
    assert offsets(world.give()) == [0, 2, 4]


def test_acknowledging_twice_is_harmless(world):
    world.store(world.orders, 2)
    (piece,) = world.give()
    assert world.pull(acks=[piece.ack(), piece.ack()], most=0)[0] == [OK, OK]


def test_an_expired_lease_that_nobody_else_got_still_counts(world):
    world.store(world.orders, 2)
    (piece,) = world.give()
    world.turn(11_000)
    assert world.pull(acks=[piece.ack()]) == ([OK], [])


def test_an_expired_lease_that_went_to_somebody_else_is_stale(world):
    world.store(world.orders, 2)
    (old,) = world.give()
    world.turn(11_000)
    (new,) = world.give()
    assert world.pull(acks=[old.ack(), new.ack()], most=0)[0] == [STALE_RECEIPT, OK]


def test_forged_altered_and_foreign_receipts_are_stale(world):
    world.store(world.orders, 2)
    (piece,) = world.give()
    altered = bytearray(piece.token)
    altered[16] ^= 1
    wrong = [
        AckRange(bytes(48), 0, 1, 0, -1, b""),
        AckRange(bytes(altered), 0, 1, 0, -1, b""),
        AckRange(piece.token, 1, 2, 0, -1, b""),
        AckRange(piece.token, 0, 0, 0, -1, b""),
        AckRange(piece.token, 0xFFFFFFFF, 0xFFFFFFFF, 0, -1, b""),
    ]
    assert world.pull(acks=wrong, most=0)[0] == [STALE_RECEIPT] * 5
    assert world.pull(acks=[piece.ack()], group="other", most=0)[0] == [STALE_RECEIPT]
    assert world.pull(acks=[piece.ack()], most=0)[0] == [OK]


def test_unknown_verdicts_are_invalid_and_leave_the_lease(world):
    world.store(world.orders, 2)
    (piece,) = world.give()
    assert world.pull(acks=[piece.ack(verdict=77)], most=0)[0] == [INVALID]
    assert world.pull(acks=[piece.ack()], most=0)[0] == [OK]


def test_retry_comes_back_after_its_delay_and_not_before(world):
    world.store(world.orders, 3)
    (piece,) = world.give()
    assert world.pull(acks=[piece.ack(1, 1, RETRY, 500)]) == ([OK], [])
    world.turn(499)
    assert world.give() == []
    world.turn(21)
    (again,) = world.give()
    assert (list(again.offsets), again.attempt) == ([1], 2)


def test_retry_without_delay_can_be_pulled_at_once(world):
    world.store(world.orders, 2)
    (piece,) = world.give()
    codes, (again,) = world.pull(acks=[piece.ack(0, 1, RETRY, 0)])
    assert (codes, list(again.offsets), again.attempt) == ([OK], [0], 2)


def test_a_released_message_can_be_pulled_at_once_and_its_delivery_was_no_attempt(world):
    world.store(world.orders, 4)
    (piece,) = world.give()
    codes, (again,) = world.pull(acks=[piece.ack(1, 2, RELEASE)])
    assert (codes, list(again.offsets), again.attempt) == ([OK], [1, 2], 1)
    world.turn(11_000)
    assert [each.attempt for each in world.give()] == [2]
    assert world.delivery.counts.released == 2


def test_a_second_release_takes_no_second_attempt_back(world):
    world.store(world.orders, 1)
    world.give()
    world.turn(11_000)
    (piece,) = world.give()
    assert world.pull(acks=[piece.ack(verdict=RELEASE)] * 2, most=0)[0] == [OK, STALE_RECEIPT]
    assert world.give()[0].attempt == 2


def test_a_message_whose_deliveries_were_all_released_is_never_buried(world):
    world.policies.set(attempts_max=1)
    world.store(world.orders, 1)
    for _ in range(5):
        (piece,) = world.give(invisible_ms=1_000)
        world.turn(10)
        assert world.pull(acks=[piece.ack(verdict=RELEASE)], most=0)[0] == [OK]
        world.turn(2_000)
    assert world.delivery.counts.dead_letters == 0
    assert world.give()[0].attempt == 1


def test_a_release_serves_a_waiting_pull(world):
    world.store(world.orders, 1)
    (piece,) = world.give()
    answers = []
    world.pull(wait_ms=5_000, answers=answers)
    world.pull(acks=[piece.ack(verdict=RELEASE)], most=0)
    assert answers[0][1][0].attempt == 1


def test_extend_keeps_a_lease_beyond_its_deadline(world):
    world.store(world.orders, 1)
    (piece,) = world.give(invisible_ms=1_000)
    world.turn(900)
    assert world.pull(acks=[piece.ack(verdict=EXTEND, delay_ms=5_000)], most=0)[0] == [OK]
    world.turn(4_900)
    assert world.give() == []
    world.turn(1_000)
    assert world.give()[0].attempt == 2


def test_extending_what_went_to_somebody_else_is_stale(world):
    world.store(world.orders, 1)
    (old,) = world.give()
    world.turn(11_000)
    world.give()
    assert world.pull(acks=[old.ack(verdict=EXTEND, delay_ms=5_000)], most=0)[0] == [STALE_RECEIPT]


def test_a_waiting_pull_is_answered_by_the_first_message_and_only_that_one(world):
    first, second = [], []
    world.pull(wait_ms=5_000, answers=first)
    world.pull(wait_ms=5_000, answers=second)
    world.store(world.orders, 1)
    assert offsets(first[0][1]) == [0]
    assert second == []
    world.store(world.orders, 1)
    assert offsets(second[0][1]) == [1]


def test_a_waiting_pull_is_answered_empty_when_its_time_is_over(world):
    answers = []
    world.pull(wait_ms=5_000, answers=answers)
    world.turn(4_900)
    assert answers == []
    world.turn(120)
    assert answers == [([], [])]
    assert world.delivery.parked == 0


def test_a_pull_without_waiting_still_waits_for_records_that_are_being_fetched(world):
    world.log.is_fetching = lambda topic_id, queue: True
    fetched, in_vain = [], []
    world.pull(wait_ms=0, answers=fetched)
    world.pull(wait_ms=0, answers=in_vain)
    assert fetched == []
    world.store(world.orders, 1)
    assert offsets(fetched[0][1]) == [0]
    world.turn(world.settings.fetch_wait_ms + 20)
    assert in_vain == [([], [])]


def test_a_waiting_pull_gets_what_anothers_expired_lease_gives_back(world):
    world.store(world.orders, 1)
    world.give(invisible_ms=1_000)
    answers = []
    world.pull(wait_ms=5_000, answers=answers)
    world.turn(1_020)
    assert answers[0][1][0].attempt == 2


def test_nothing_is_leased_to_a_pull_whose_connection_has_closed(world):
    answers = []
    pull = world.pull(wait_ms=5_000, answers=answers)
    world.delivery.cancel(pull)
    world.store(world.orders, 1)
    world.turn(6_000)
    assert answers == []
    assert world.give()[0].attempt == 1


def test_a_hung_consumer_delays_only_what_it_holds(world):
    world.store(world.orders, 100)
    held = world.give(most=10, invisible_ms=60_000)
    taken = []
    while pieces := world.give(most=10):
        taken += offsets(pieces)
        world.pull(acks=[piece.ack() for piece in pieces], most=0)
    assert taken == list(range(10, 100))
    world.turn(61_000)
    assert offsets(world.give()) == offsets(held)


def test_one_pull_takes_runs_of_several_queues_in_turns(world):
    world.store(world.topic("orders", 4), 30, queue=1, size=10_000)
    world.store(world.orders, 30, queue=3, size=10_000)
    pieces = world.give(topics=[("orders", 4)], most=28, most_bytes=1 << 20)
    assert list(dict.fromkeys((piece.queue, piece.lease) for piece in pieces)) == [
        (piece.queue, piece.lease) for piece in pieces
    ]
    assert [piece.queue for piece in pieces] == [1, 3, 1, 3, 1]
    assert len(offsets(pieces)) == 28


def test_pulls_of_few_messages_visit_all_queues_in_turn(world):
    topic = world.topic("orders", 4)
    for queue in range(4):
        world.store(topic, 10, queue=queue)
    seen = [world.give(topics=[("orders", 4)], most=2)[0].queue for _ in range(8)]
    assert seen == [0, 1, 2, 3, 0, 1, 2, 3]


def test_large_messages_do_not_take_more_than_their_share_of_bytes(world):
    large, small = world.topic("large"), world.topic("small")
    for _ in range(40):
        world.store(large, 1, size=256 << 10)
    for _ in range(100):
        world.store(small, 100, size=1_000)
    topics, given = [("large", 1), ("small", 1)], {True: 0, False: 0}
    for _ in range(300):
        for piece in world.give(topics=topics, most=100, most_bytes=64 << 10):
            given[piece.size > 200_000] += piece.size
    assert 0.6 < given[True] / given[False] < 1.7


def test_the_first_message_is_given_however_large_and_no_second_beyond_the_bytes_asked_for(world):
    world.store(world.orders, 2, size=100_000)
    assert offsets(world.give(most_bytes=1)) == [0]
    assert offsets(world.give(most_bytes=150_000)) == [1]


def test_a_new_group_starts_at_the_earliest_or_at_the_latest(world):
    world.store(world.orders, 5)
    assert offsets(world.give(group="all")) == [0, 1, 2, 3, 4]
    assert world.give(group="new", start=LATEST) == []
    world.restart()
    world.store(world.orders, 1)
    assert offsets(world.give(group="new", start=LATEST)) == [5]


def test_a_queue_added_later_is_read_from_its_first_message_also_by_a_group_that_started_at_the_latest(world):
    world.give(start=LATEST)
    world.store(world.topic("orders", 2), 3, queue=1)
    assert offsets(world.give(topics=[("orders", 2)], start=LATEST)) == [0, 1, 2]


def test_a_restart_goes_on_where_progress_was_written(world):
    world.store(world.orders, 20)
    pieces = world.give(most=10)
    world.pull(acks=[pieces[0].ack(0, 3), pieces[0].ack(5, 2)], most=0)
    world.delivery.write_progress()
    world.restart()
    assert offsets(world.give(most=5)) == list(range(10, 15))
    world.turn(11_000)
    again = world.give()
    assert offsets(again) == [3, 4, 7, 8, 9, *range(10, 20)]
    assert [piece.attempt for piece in again] == [2, 2, 1]


def test_a_receipt_from_before_a_restart_still_counts_unless_its_message_went_on(world):
    world.store(world.orders, 4)
    (old,) = world.give()
    world.delivery.write_progress()
    world.turn(11_000)
    world.restart()
    assert offsets(world.give(most=4)) == [0, 1]
    assert world.pull(acks=[old.ack(0, 2), old.ack(2, 2)], most=0)[0] == [STALE_RECEIPT, OK]
    assert world.give() == []


def test_a_receipt_counts_after_a_crash_that_lost_the_progress_of_its_lease(world):
    world.store(world.orders, 6)
    (old,) = world.give(most=4)
    world.turn(10)
    world.restart()
    assert world.pull(acks=[old.ack(1, 2)])[0] == [OK]
    world.restart()
    codes, pieces = world.pull(acks=[old.ack(1, 2)])
    assert (codes, offsets(pieces)) == ([OK], [0, 3, 4, 5])


def test_an_old_receipt_does_not_acknowledge_messages_that_were_stored_after_its_lease(world, form):
    world.store(world.orders, 1)
    (old,) = world.give()
    world.delivery.group("g")
    lost = World(form)
    lost.orders = lost.topic()
    lost.wall_ms = world.wall_ms + 60_000
    lost.restart()
    lost.store(lost.orders, 1)
    assert lost.pull(acks=[old.ack()], most=0)[0] == [STALE_RECEIPT]
    assert offsets(lost.give()) == [0]


def test_retention_moves_a_group_on_and_drops_what_it_held(world):
    world.store(world.orders, 10)
    world.give(most=4, invisible_ms=1_000)
    world.log.retain(world.orders, 0, 6)
    world.turn(2_000)
    assert offsets(world.give()) == [6, 7, 8, 9]


def test_in_flight_messages_are_bounded_and_an_acknowledgement_makes_room(form):
    world = World(form, in_flight_max=10)
    world.store(world.topic(), 30)
    first = world.give(most=100)
    assert len(offsets(first)) == 10
    answers = []
    world.pull(wait_ms=5_000, most=100, answers=answers)
    assert answers == []
    world.pull(acks=[first[0].ack(0, 4)], most=0)
    assert offsets(answers[0][1]) == [10, 11, 12, 13]


def test_an_empty_answer_tells_a_bound_from_an_empty_queue(form):
    world = World(form, in_flight_max=10)
    world.store(world.topic(), 12)
    (held,) = world.give(most=100)
    assert is_at_bound(world)
    world.pull(acks=[held.ack(0, 10)], most=0)
    assert not is_at_bound(world), "two messages"
    assert not is_at_bound(world), "nothing is left"


def is_at_bound(world) -> bool:
    done = []
    raw = U16.pack(6) + b"orders\1"
    world.delivery.pull(PullRequest("g", [("orders", 1)], raw, 9, 0, 0, 9_000, 0, []), world.now_ms, done.append)
    return world.delivery.is_at_bound(done[0])


def test_the_number_of_holes_is_bounded(form):
    world = World(form, ranges_max=4)
    world.store(world.topic(), 30)
    for _ in range(10):
        world.give(most=1)
    cursor = next(iter(world.delivery.group("g").topics.values()))[0]
    assert len(cursor.in_flight) == 4


def test_moving_a_group_makes_its_receipts_stale_also_after_a_restart(world):
    world.store(world.orders, 5)
    (old,) = world.give()
    group = world.delivery.group("g")
    world.delivery.move(group, group.load_all()[0], 0, world.now_ms)
    assert world.pull(acks=[old.ack()], most=0)[0] == [STALE_RECEIPT]
    world.delivery.write_progress()
    world.turn(10)
    world.restart()
    assert world.pull(acks=[old.ack()], most=0)[0] == [STALE_RECEIPT]
    assert offsets(world.give()) == [0, 1, 2, 3, 4]


def test_progress_is_written_only_for_queues_that_moved(world):
    topic = world.topic("orders", 8)
    world.store(topic, 3, queue=5)
    world.give(topics=[("orders", 8)])
    before = world.log.progress_writes
    world.delivery.write_progress()
    world.delivery.write_progress()
    assert world.log.progress_writes == before + 2, "one queue, and the lease clock"


def test_progress_is_written_in_slices_each_place_once_and_again_after_a_refusal(form, monkeypatch):
    world = World(form)
    topic = world.topic(queues=5)
    for queue in range(5):
        world.store(topic, 1, queue=queue)
    world.give(topics=(("orders", 5),))
    written = []
    monkeypatch.setattr(world.log, "put_progress", note := lambda entries: written.extend(queues_of(entries)))
    assert not world.delivery.write_progress(2)
    assert len(written) == 2

    def refuse(entries):
        raise OSError("no room")

    monkeypatch.setattr(world.log, "put_progress", refuse)
    with pytest.raises(OSError, match="no room"):
        world.delivery.write_progress(2)
    monkeypatch.setattr(world.log, "put_progress", note)
    assert not world.delivery.write_progress(2)
    assert world.delivery.write_progress(2)
    assert len(written) == len(set(written)) == 5
    assert not world.delivery.has_progress


def queues_of(entries) -> list[bytes]:
    """The keys of progress among entries."""
    return [key for key, _ in entries if split_key(key) is not None]
