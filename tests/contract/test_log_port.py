"""The port that delivery is built on: the same cases on the log in memory and on the real log, in both forms."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import LogConfig
from engine.env.simulated import SimulatedEnv
from engine.errors import EngineConfigError, OffsetOutOfRangeError, UnknownTopicError
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record, padded, split_records, whole_records
from engine.log.memory import MemoryLog
from engine.log.port import DeliveryLog

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "engine" / "log"))

from forms import forms, load

NOW = 1_700_000_000_000
BIG = 1 << 20


@pytest.fixture(params=["memory", *forms()])
def log(request: pytest.FixtureRequest) -> Iterator[DeliveryLog]:
    """An empty log with the topics 1 (two queues) and 2 (one queue)."""
    if request.param == "memory":
        made = MemoryLog()
    else:
        made = load(request.param).log.open_log(SimulatedEnv(), "/data", LogConfig(segment_bytes=1 << 16))
    made.create_topics([("first", 2), ("second", 1)])
    yield made
    if request.param != "memory":
        made.close()


def batch(topic_id: int, queue: int, *bodies: bytes) -> bytes:
    return pack_batch(KIND_MESSAGES, topic_id, queue, [pack_record(body) for body in bodies])


def append(log: DeliveryLog, topic_id: int, queue: int, *bodies: bytes, at_ms: int = NOW) -> int:
    ((code, offset),) = log.append(batch(topic_id, queue, *bodies), 1, at_ms)
    assert code == 0
    return offset


def shapes(log: DeliveryLog, offset: int, records: int = 100, size: int = BIG, **options) -> list[tuple[int, int]]:
    return [(each.first_offset, each.count) for each in log.read(1, 0, offset, records, size, **options)]


def test_each_queue_counts_its_own_offsets_from_0(log):
    assert [append(log, 1, 0, b"a", b"b"), append(log, 1, 1, b"c"), append(log, 1, 0, b"d")] == [0, 0, 2]
    assert log.bounds(1, 0) == (0, 3) and log.bounds(1, 1) == (0, 1) and log.bounds(2, 0) == (0, 0)
    assert [log.end(1, 0), log.end(1, 1), log.end(2, 0)] == [3, 1, 0]


def test_many_batches_are_answered_one_by_one_and_a_refused_one_does_not_stop_the_others(log):
    batches = batch(1, 0, b"a") + batch(9, 0, b"b") + batch(1, 7, b"c") + batch(2, 0, b"d")
    assert log.append(batches, 4, NOW) == [(0, 0), (102, 0), (100, 0), (0, 0)]
    assert log.bounds(1, 0) == (0, 1) and log.bounds(2, 0) == (0, 1)


def test_the_end_position_grows_by_what_was_appended(log):
    before = log.end_position
    append(log, 1, 0, b"a" * 10)
    assert log.end_position == before + padded(len(batch(1, 0, b"a" * 10)))


def test_slices_are_those_that_were_stored_with_their_times(log):
    append(log, 1, 0, b"a", b"b", at_ms=NOW + 5)
    append(log, 1, 0, b"c", at_ms=NOW + 9)
    found = log.read(1, 0, 0, 100, BIG)
    assert [(each.first_offset, each.count, each.stored_at_ms) for each in found] == [(0, 2, NOW + 5), (2, 1, NOW + 9)]
    assert [list(split_records(each.records)) for each in found] == [[b"a", b"b"], [b"c"]]


def test_a_read_begins_and_ends_within_batches(log):
    append(log, 1, 0, b"a", b"b", b"c")
    append(log, 1, 0, b"d", b"e")
    assert shapes(log, 1, 3) == [(1, 2), (3, 1)]
    assert shapes(log, 4) == [(4, 1)]
    assert shapes(log, 0, 0) == [] == shapes(log, 5)


@pytest.mark.parametrize(("size", "expected"), [(0, 1), (99, 1), (199, 1), (200, 2), (400, 4), (499, 4), (500, 5)])
def test_bytes_bound_a_read_but_the_first_record_is_always_returned(log, size, expected):
    append(log, 1, 0, b"x" * 95, b"y" * 95)
    append(log, 1, 0, b"x" * 95, b"y" * 95, b"z" * 95)
    found = log.read(1, 0, 0, 100, size)
    assert sum(each.count for each in found) == expected
    assert sum(len(list(whole_records(each.records))) for each in found) == expected


def test_a_whole_read_returns_the_rest_of_the_batch_in_which_it_ends(log):
    append(log, 1, 0, b"x" * 95, b"y" * 95)
    append(log, 1, 0, b"x" * 95, b"y" * 95, b"z" * 95)
    append(log, 1, 0, b"later")
    assert shapes(log, 1, size=150, whole=True) == [(1, 1), (2, 3)]
    assert shapes(log, 1, records=2, size=150, whole=True) == [(1, 1), (2, 1)]


def test_offsets_outside_the_bounds_are_refused(log):
    append(log, 1, 0, b"a")
    for offset in (2, -1, 1 << 63):
        with pytest.raises(OffsetOutOfRangeError, match=r"0\.\.1"):
            log.read(1, 0, offset, 1, 1)


@pytest.mark.parametrize(("topic_id", "queue"), [(3, 0), (1, 2), (0, 1)])
def test_unknown_topics_and_queues_are_refused(log, topic_id, queue):
    for call in (log.bounds, log.end, lambda *at: log.read(*at, 0, 1, 1), lambda *at: log.offset_at_time(*at, 0)):
        with pytest.raises(UnknownTopicError):
            call(topic_id, queue)


def test_an_offset_is_found_by_the_time_of_storing(log):
    for number in range(3):
        append(log, 1, 0, b"a", b"b", at_ms=NOW + number * 10)
    assert [log.offset_at_time(1, 0, NOW + at) for at in (-5, 0, 1, 10, 20, 21)] == [0, 0, 2, 2, 4, 6]


def test_an_armed_queue_is_woken_once(log):
    log.watch(1, 0)
    append(log, 1, 1, b"other")
    assert log.take_woken() == []
    append(log, 1, 0, b"a")
    append(log, 1, 0, b"b")
    assert log.take_woken() == [(1, 0)] and log.take_woken() == []
    assert not log.is_fetching(1, 0)


def test_topics_are_found_created_and_grown_and_never_shrink(log):
    first = log.topic("first")
    assert first == (1, "first", 2, 0) == log.topic_by_id(1) and log.topic("third") is None is log.topic_by_id(3)
    assert log.create_topics([("third", 1), ("first", 4), ("second", 1), ("first", 1)]) == [
        (3, "third", 1, 0), (1, "first", 4, 0), (2, "second", 1, 0), (1, "first", 4, 0),
    ]  # fmt: skip
    assert log.bounds(1, 3) == (0, 0) and log.topic("first") == (1, "first", 4, 0)


def test_a_topic_without_queues_is_refused_and_nothing_is_created(log):
    with pytest.raises(EngineConfigError):
        log.create_topics([("good", 1), ("bad", 0)])
    assert log.topic("good") is None


def test_progress_is_the_latest_value_of_each_key_in_key_order(log):
    log.put_progress([(b"gb", b"1"), (b"ga", b"2"), (b"h", b"3")])
    log.put_progress([(b"ga", b"4")])
    assert list(log.progress(b"g")) == [(b"ga", b"4"), (b"gb", b"1")]
    log.put_progress([(b"ga", b"")])
    assert list(log.progress()) == [(b"gb", b"1"), (b"h", b"3")]


def test_a_callback_comes_once_the_position_is_durable(log):
    came: list[int] = []
    log.when_durable(0, lambda: came.append(0))
    append(log, 1, 0, b"a")
    log.when_durable(log.end_position, lambda: came.append(1))
    assert came == [0, 1]


def test_a_growth_records_where_the_old_queues_ended_and_is_told_before_a_message_is_in_a_new_one(log):
    grown = []
    log.growth.on_growth(
        lambda topic, growths: grown.append((topic, [log.bounds(1, queue) for queue in range(topic.queues)], growths))
    )
    append(log, 1, 1, b"a", b"b")
    log.create_topics([("first", 2), ("second", 1), ("new", 4)])
    assert grown == []
    log.create_topics([("first", 4), ("second", 1)])
    assert [(topic.queues, ends) for topic, ends, _ in grown] == [(4, [(0, 0), (0, 2), (0, 0), (0, 0)])]
    append(log, 1, 3, b"c")
    log.create_topics([("first", 5)])
    assert [each.ends for each in log.growth.of(1)] == [(0, 2), (0, 2, 0, 1)]
    assert [[each.ends for each in growths] for _, _, growths in grown] == [[(0, 2)], [(0, 2), (0, 2, 0, 1)]]
    assert log.growth.of(2) == []


def test_a_topic_that_is_made_again_has_an_id_of_its_own_and_nothing_of_the_old_one(log):
    replaced = []
    log.growth.on_replaced(lambda old, new: replaced.append((old.id, new.id)))
    (old,) = log.create_topics([("orders@100", 4)])
    append(log, old.id, 0, b"a")
    assert log.create_topics([("orders@100", 4), ("orders", 4)]) == [old, old]
    (new,) = log.create_topics([("orders@200", 2)])
    assert (new.id, new.name, new.queues, new.made_ms) == (4, "orders", 2, 200)
    assert replaced == [(old.id, new.id)]
    assert log.bounds(new.id, 0) == (0, 0)
    assert (log.topic("orders"), log.topic("orders@200"), log.topic("orders@100")) == (new, new, None)
    assert (log.topic_by_id(old.id), log.topic_by_id(new.id)) == (old, new)
    assert log.growth.of(new.id) == []
    with pytest.raises(UnknownTopicError, match="replaced"):
        log.create_topics([("orders@100", 8)])
    assert log.topic("orders") == new


def test_a_topic_of_a_family_keeps_its_id_when_it_gets_a_definition_of_its_own(log):
    append(log, 1, 0, b"a")
    (own,) = log.create_topics([("first@100", 3)])
    assert (own.id, own.queues, own.made_ms) == (1, 3, 100)
    assert log.create_topics([("first", 2)]) == [own]
    assert log.bounds(1, 0) == (0, 1)


@pytest.mark.parametrize("name", ["first@", "first@0", "first@x", "first@" + "9" * 5000, "@5", "a@b@5"])
def test_text_that_is_no_stored_name_is_the_name_of_no_topic(log, name):
    assert log.topic(name) is None


def test_used_queues_are_those_with_a_record_in_whatever_segment(log):
    (many,) = log.create_topics([("many", 300)])
    assert log.used_queues(many.id) == set()
    for queue in (0, 7, 299):
        append(log, many.id, queue, b"x" * 100)
    append(log, 1, 1, b"other")
    assert log.used_queues(many.id) == {0, 7, 299}
    for _ in range(12):
        append(log, 1, 0, b"y" * 16_000)  # the real log goes on in other segments
    append(log, many.id, 8, b"z")
    assert log.used_queues(many.id) == {0, 7, 8, 299}
    assert log.used_queues(1) == {0, 1}


def test_a_forgotten_topic_is_unknown_and_its_id_is_not_used_again(log):
    told = []
    log.growth.on_forgotten(told.append)
    log.create_topics([("first", 3)])
    first, second = log.topics()
    assert log.end_if_empty(first) == 0
    assert log.end_if_empty(second) is None  # the highest id
    log.forget_topic(first)
    assert told == [first]
    assert (log.topic("first"), log.topic_by_id(1), log.topics()) == (None, None, [second])
    assert log.growth.of(1) == []
    assert log.append(batch(1, 0, b"late"), 1, NOW) == [(102, 0)]
    with pytest.raises(UnknownTopicError):
        log.bounds(1, 0)
    assert log.create_topics([("first", 1)])[0][:3] == (3, "first", 1)


def test_a_topic_with_a_message_is_not_to_be_forgotten(log):
    log.create_topics([("first", 1), ("last", 1)])
    append(log, 1, 1, b"a")
    assert log.end_if_empty(log.topic("first")) is None
    assert log.end_if_empty(log.topic("second")) == 0
