"""TIMER_ADD_AGAIN over the link, from both forms of the server, on a real log."""

import pytest

from engine.client.timers import ANY_QUEUE, Timer, encode_add
from engine.link import layout
from engine.link.append import APPEND_RESULT
from engine.link.timer import encode_add_again
from tests.contract.test_timers_on_the_link import Engine, engine, now_ms
from tests.waiting import until

__all__ = ["engine"]

OK, DUPLICATE, INVALID, TIMEOUT = layout.OK, layout.DUPLICATE, layout.INVALID, layout.TIMEOUT
FAR_MS = 3_600_000


def timer(engine: Engine, number: int, due_ms: int = -FAR_MS, **changes) -> Timer:
    record = b"\1" + number.to_bytes(16, "big") + b"m\0"
    return Timer(due_ms, engine.orders.id, ANY_QUEUE, 0, 0, 0, 0, 1, 1, 16, 0, record)._replace(**changes)


def again(engine: Engine, position: int, *timers: Timer, durability: int = layout.FSYNC) -> list[int]:
    code, answer = engine.ask(layout.TIMER_ADD_AGAIN, encode_add_again(position, encode_add(durability, list(timers))))
    assert code == OK, answer
    return [each[0] for each in APPEND_RESULT.iter_unpack(answer)]


def pending(engine: Engine) -> list[str]:
    return sorted(row["id"][-2:] for row in engine.list()[1]["timers"])


@pytest.mark.parametrize("durability", [layout.MEMORY, layout.FSYNC])
def test_what_is_stored_is_answered_and_what_is_missing_is_added(engine, durability):
    position = engine.log.end_position
    engine.add(1, -FAR_MS)
    both = timer(engine, 1), timer(engine, 2)
    assert again(engine, position, *both, durability=durability) == [OK, OK]
    assert pending(engine) == ["01", "02"]
    assert again(engine, position, *both, durability=durability) == [OK, OK]
    assert pending(engine) == ["01", "02"] and engine.node.timers.counts.added == 2
    if durability == layout.FSYNC:
        assert engine.log.durable_position == engine.log.end_position


def test_a_message_that_has_fired_meanwhile_is_stored_and_does_not_come_again(engine):
    position = engine.log.end_position
    engine.add(1, now_ms())
    until(lambda: engine.log.bounds(engine.orders.id, 0)[1] + engine.log.bounds(engine.orders.id, 1)[1], "it fires")
    assert again(engine, position, timer(engine, 1, now_ms())) == [OK]
    assert pending(engine) == [] and engine.node.timers.counts.added == 1


def test_another_message_with_the_id_of_a_pending_one_is_a_duplicate(engine):
    position = engine.log.end_position
    engine.add(1, -FAR_MS)
    other = timer(engine, 1)
    assert again(engine, position, other._replace(record=other.record[:-1] + b"!")) == [DUPLICATE]


def test_the_same_message_of_another_topic_is_another_one(engine):
    position = engine.log.end_position
    (refunds,) = engine.log.create_topics([("refunds", 1)])
    engine.add(1, -FAR_MS)
    assert again(engine, position, timer(engine, 1, topic_id=refunds.id)) == [OK]
    assert engine.node.timers.counts.added == 2


def test_what_lies_below_the_position_is_not_looked_at(engine):
    engine.add(1, now_ms())
    until(lambda: engine.log.bounds(engine.orders.id, 0)[1] + engine.log.bounds(engine.orders.id, 1)[1], "it fires")
    assert again(engine, engine.log.end_position, timer(engine, 1)) == [OK]
    assert pending(engine) == ["01"]


def test_what_the_log_cannot_tell_may_be_stored(engine, monkeypatch):
    position = engine.log.end_position
    engine.add(1, -FAR_MS)
    find = engine.log.batch_search.find_parts
    monkeypatch.setattr(engine.log.batch_search, "find_parts", lambda *asked: (find(*asked)[0], False))
    assert again(engine, position, timer(engine, 1), timer(engine, 2)) == [OK, TIMEOUT]
    assert pending(engine) == ["01"]


def test_malformed_requests_are_refused_and_a_cut_off_message_is_invalid(engine):
    add = encode_add(layout.FSYNC, [timer(engine, 1)])
    for bad in (b"", b"1234567", encode_add_again(0, b""), encode_add_again(0, b"\7" + add[1:])):
        assert engine.ask(layout.TIMER_ADD_AGAIN, bad)[0] == INVALID
    code, answer = engine.ask(layout.TIMER_ADD_AGAIN, encode_add_again(0, add[:-1]))
    assert (code, APPEND_RESULT.unpack(answer)[0]) == (OK, INVALID)
    assert pending(engine) == []
