"""Messages that RETRY gave back: open, but no consumer has them, and no reason for the queue to stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.delivery import progress
from engine.delivery.policy import KEY, QUEUE
from engine.delivery.progress import Progress, StoredRange
from engine.delivery.settings import DeliverySettings
from engine.link.acknowledgement import DONE, EXTEND, RETRY
from engine.link.codes import OK, STALE_RECEIPT
from engine.log.format import pack_record
from tests.unit.engine.delivery._world import FORMS, World, offsets
from tests.unit.engine.delivery.test_order import record

HOUR_MS = 3_600_000


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def form(request):
    return request.param


def made(form, count: int, **settings) -> World:
    world = World(form, **settings)
    world.orders = world.topic()
    world.store(world.orders, count)
    return world


def cursor_of(world):
    (cursor,) = world.delivery.group("g").load_all()
    return cursor


def give_back_every_second(world, most: int = 4, delay_ms: int = HOUR_MS) -> list[int]:
    """Pull until nothing comes: DONE for even offsets, RETRY for odd ones. Returns what came."""
    seen: list[int] = []
    while pieces := world.give(most=most):
        acks = [
            piece.ack(at, 1, RETRY if offset % 2 else DONE, delay_ms if offset % 2 else -1)
            for piece in pieces
            for at, offset in enumerate(piece.offsets)
        ]
        assert set(world.pull(acks=acks, most=0)[0]) == {OK}
        seen += offsets(pieces)
    return seen


def test_withheld_messages_do_not_stop_the_queue(form):
    world = made(form, 200, in_flight_max=10, ranges_max=6)
    assert give_back_every_second(world) == list(range(200))
    cursor = cursor_of(world)
    assert (cursor.in_flight.withheld, cursor.in_flight.withheld_messages, cursor.contiguous) == (100, 100, 1)
    world.store(world.orders, 2)
    assert offsets(world.give()) == [200, 201]
    world.turn(HOUR_MS + 300)
    again = []
    while pieces := world.give(most=64):
        world.pull(acks=[piece.ack() for piece in pieces], most=0)
        again += [(offset, piece.attempt) for piece in pieces for offset in piece.offsets]
    assert [each for each in again if each[0] < 200] == [(offset, 2) for offset in range(1, 200, 2)]
    assert (cursor.in_flight.withheld, cursor.in_flight.withheld_messages, cursor.contiguous) == (0, 0, 202)


def test_what_is_withheld_survives_a_restart_as_that(form):
    world = made(form, 200, in_flight_max=10, ranges_max=6)
    give_back_every_second(world)
    for _ in range(3):
        world.delivery.write_progress(now_ms=world.now_ms, is_final=True)
        world.restart()
        world.store(world.orders, 1)
        (piece,) = world.give()  # there is room
        assert world.pull(acks=[piece.ack()], most=0)[0] == [OK]
        assert cursor_of(world).in_flight.withheld == 100
    world.turn(HOUR_MS - 1_000)
    assert world.give() == []
    world.turn(2_000)
    assert offsets(world.give(most=8)) == [1, 3, 5, 7]


def test_the_bounds_of_what_is_withheld_stop_the_queue_until_a_delay_is_over(form):
    world = made(form, 200, ranges_max=6, withheld_ranges_max=10)
    assert len(give_back_every_second(world, most=2)) < 60
    assert cursor_of(world).is_at_bound
    world.turn(HOUR_MS + 300)
    (first,) = world.give(most=2)
    assert (list(first.offsets), first.attempt) == ([1], 2)
    world = made(form, 200, withheld_max=10)
    assert len(give_back_every_second(world, most=4)) == 20
    assert cursor_of(world).is_at_bound


def test_the_holder_of_a_withheld_message_may_still_settle_or_extend_it(form):
    world = made(form, 3)
    (piece,) = world.give()
    world.pull(acks=[piece.ack(verdict=RETRY, delay_ms=HOUR_MS)], most=0)
    in_flight = cursor_of(world).in_flight
    assert (in_flight.withheld, in_flight.withheld_messages) == (1, 3)
    assert world.pull(acks=[piece.ack(1, 1), piece.ack(2, 1, EXTEND, 5_000)], most=0)[0] == [OK, OK]
    assert (in_flight.messages, in_flight.withheld, in_flight.withheld_messages) == (2, 1, 1)
    world.turn(5_020)
    assert [(list(each.offsets), each.attempt) for each in world.give()] == [([2], 2)]
    assert world.pull(acks=[piece.ack(2, 1)], most=0)[0] == [STALE_RECEIPT]


def test_messages_of_one_lease_that_are_given_back_one_by_one_are_one_range(form):
    world = made(form, 1_000)
    (piece,) = world.give(most=1_000, most_bytes=1 << 20)
    world.pull(acks=[piece.ack(at, 1, RETRY, HOUR_MS) for at in range(1_000)], most=0)
    assert (len(cursor_of(world).in_flight), cursor_of(world).in_flight.withheld_messages) == (1, 1_000)
    world.turn(HOUR_MS + 20)
    assert offsets(world.give(most=1_000, most_bytes=1 << 20)) == list(range(500))


def test_a_withheld_message_holds_back_its_key_and_no_other(form):
    world = World(form, ranges_max=6)
    topic = world.topic()
    world.policies.set(order=KEY)
    keys = "".join("ab"[at % 2] if at < 4 else chr(300 + at) for at in range(60))
    world.log.store(topic, 0, [record(key) for key in keys], world.wall_ms)
    world.delivery.on_woken(world.log.take_woken(), world.now_ms)
    seen = []
    while pieces := world.give(most=4):
        acks = [
            piece.ack(at, 1, RETRY if offset % 2 else DONE, HOUR_MS if offset % 2 else -1)
            for piece in pieces
            for at, offset in enumerate(piece.offsets)
        ]
        world.pull(acks=acks, most=0)
        seen += offsets(pieces)
    assert sorted(seen) == [offset for offset in range(60) if offset != 3]  # 3 waits for 1
    assert 2 in seen and cursor_of(world).in_flight.withheld > 6
    world.delivery.write_progress()
    world.restart()
    assert world.give() == []


def test_with_order_by_queue_a_withheld_message_holds_back_the_queue(form):
    world = made(form, 3)
    world.policies.set(order=QUEUE)
    (piece,) = world.give(most=1)
    world.pull(acks=[piece.ack(verdict=RETRY, delay_ms=1_000)], most=0)
    assert world.give() == []
    world.turn(1_020)
    assert [(list(each.offsets), each.attempt) for each in world.give()] == [([0], 2)]


def test_above_the_bound_of_the_engine_only_queues_with_many_ranges_stand(form):
    world = made(form, 60, ranges_max=6, withheld_ranges_all_max=10)
    world.store(world.topic("orders", 2), 60, queue=1)
    both = [("orders", 2)]
    for piece in world.give(topics=both, most=48):
        world.pull(acks=[piece.ack(at, 1, RETRY, HOUR_MS) for at in range(1, piece.count, 2)], most=0)
    world.turn(1_000)
    first, second = world.delivery.group("g").load_all()
    assert first.is_at_bound and first.in_flight.withheld >= 10
    assert not second.is_at_bound
    assert {piece.queue for piece in world.give(topics=both)} == {1}
    world.turn(HOUR_MS)
    while pieces := world.give(topics=both):
        world.pull(acks=[piece.ack() for piece in pieces], most=0)
    world.turn(1_000)
    assert not first.is_at_bound and first.withheld_ranges_max == world.settings.withheld_ranges_max
    assert (first.contiguous, second.contiguous) == (60, 60)


def test_a_record_of_many_ranges_is_written_less_often_but_always_at_a_stop_or_a_hand_over(form, monkeypatch):
    monkeypatch.setattr("engine.delivery.progress_writer.LARGE_RANGES", 50)
    monkeypatch.setattr("engine.delivery.progress_writer.RANGES_PER_MS", 1)
    world = made(form, 200)
    give_back_every_second(world, most=32)
    key = cursor_of(world).key
    write = lambda **options: world.delivery.write_progress(100, now_ms=world.now_ms, **options)  # noqa: E731
    kept = lambda: dict(world.log.progress(key))[key]  # noqa: E731
    assert write()
    before = kept()
    world.store(world.orders, 1)
    world.turn(99)
    world.give()
    assert write() and kept() == before
    world.turn(1)
    assert write() and kept() != before
    before = kept()
    world.store(world.orders, 1)
    world.give()
    assert write() and kept() == before
    world.delivery.write_progress(now_ms=world.now_ms)
    assert kept() != before


def test_small_segments_bound_a_record(form):
    assert DeliverySettings().fitting(1 << 20).withheld_ranges_max == 65_536
    assert DeliverySettings().fitting(256 << 20) == DeliverySettings()


# -- attempts_max falls


@pytest.mark.parametrize("order", [KEY, QUEUE])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_withheld_messages_that_have_used_their_attempts_are_dead_lettered_when_the_maximum_falls(
    form, order, is_restarted
):
    world = World(form)
    topic = world.topic()
    world.policies.set(order=order, attempts_max=5)
    world.log.store(topic, 0, [record("k"), record("k")], world.wall_ms)
    world.delivery.on_woken(world.log.take_woken(), world.now_ms)
    (piece,) = world.give(most=1)
    world.pull(acks=[piece.ack(verdict=RETRY, delay_ms=HOUR_MS)], most=0)
    if is_restarted:
        world.delivery.write_progress()
        world.restart()
    answers = []
    world.pull(wait_ms=10_000, answers=answers)
    world.policies.set(attempts_max=1)
    for _ in range(3):
        world.turn(20)
    assert world.delivery.counts.dead_letters == 1
    assert [(list(each.offsets), each.attempt) for each in answers[0][1]] == [([1], 1)]


def test_a_withheld_message_with_attempts_left_and_a_leased_one_stay_when_the_maximum_falls(form):
    world = made(form, 2)
    held, leased = (world.give(most=1, invisible_ms=60_000)[0] for _ in range(2))
    world.pull(acks=[held.ack(verdict=RETRY, delay_ms=HOUR_MS)], most=0)
    world.policies.set(attempts_max=2)
    world.turn(20)
    assert world.delivery.counts.dead_letters == 0
    world.policies.set(attempts_max=1)
    world.turn(20)
    assert world.delivery.counts.dead_letters == 1
    assert world.pull(acks=[leased.ack()], most=0)[0] == [OK]


def test_very_many_withheld_messages_are_dead_lettered_in_steps(form, monkeypatch):
    monkeypatch.setattr("engine.delivery.dead_lettering.WITHHELD_PER_STEP", 10)
    world = made(form, 100)
    give_back_every_second(world)
    world.policies.set(attempts_max=1)
    world.turn(20)
    assert world.delivery.counts.dead_letters == 10
    for _ in range(5):
        world.turn(1)
    assert (world.delivery.counts.dead_letters, cursor_of(world).contiguous) == (50, 100)


# -- stored form


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9), st.integers(1, 300), st.integers(0, 3), st.integers(0, 9_000_000), st.booleans(),
            *[st.integers(0, 5_000_000)] * 2,
        ),
        max_size=8,
    ),
    st.data(),
)  # fmt: skip
def test_both_forms_load_the_same_of_a_stored_value_and_refuse_the_same(parts, data):
    ranges, at, time_ms = [], 0, 1_800_000_000_000
    for gap, count, attempt, due, withheld, age, more in parts:
        oldest, newest = (time_ms - age - more, time_ms - age) if due else (0, 0)
        ranges.append(StoredRange(at + gap, at + gap + count, attempt, due, oldest, newest, withheld and due > 0))
        at += gap + count
    value = progress.encode(Progress(5, at, ranges, time_ms, 9))
    assert progress.decode(value).ranges == list(progress._merged(ranges))
    cut = data.draw(st.integers(0, len(value)))
    for each in (value, value[:cut], value + b"\0"):
        assert len({loaded(form, each) for form in FORMS}) == 1


def loaded(form, value: bytes) -> str:
    ranges = form.InFlightRanges()
    try:
        head = ranges.load(value, 1_000)
    except ValueError as error:
        assert not ranges
        return str(error)
    return f"{head} {ranges.messages} {ranges.withheld} {ranges.withheld_messages} {ranges.ranges} {ranges.attempt_top}"


def test_a_value_without_a_withheld_range_has_the_form_that_earlier_versions_know():
    held = StoredRange(3, 9, 1, 9, 1_000, 1_000)
    assert progress.encode(Progress(0, 9, [held], 1_000))[0] == 2
    assert progress.encode(Progress(0, 9, [held._replace(is_withheld=True)], 1_000))[0] == 3


def test_many_withheld_messages_cost_few_bytes_each(form):
    world = made(form, 0)
    world.log.store(world.orders, 0, [pack_record(b"x" * 5)] * 4_000, world.wall_ms)
    world.delivery.on_woken(world.log.take_woken(), world.now_ms)
    give_back_every_second(world, most=500)
    world.delivery.write_progress()
    assert len(dict(world.log.progress(cursor_of(world).key))[cursor_of(world).key]) < 7 * 2_000
