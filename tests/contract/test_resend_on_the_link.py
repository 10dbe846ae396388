"""RESEND over the link, from both forms of the server, on a real log."""

import pytest

from common.reply_token import TOKEN_SIZE
from engine.link import layout
from engine.link.append import encode_resend, read_end, read_results
from engine.link.batch import encode_batch
from engine.link.pull import encode_pull
from engine.link.record import encode_record
from tests import link_bytes as raw
from tests.contract.link_engine import Engine, turn_until

OK, DUPLICATE, INVALID, TIMEOUT = layout.OK, layout.DUPLICATE, layout.INVALID, layout.TIMEOUT


def append(engine: Engine, *batches: bytes, durability: int = raw.MEMORY) -> tuple[list, int]:
    """The results of an APPEND, and the log's end that it told."""
    code, answer = engine.ask(layout.APPEND, raw.append(durability, *batches))
    assert code == OK, answer
    return list(read_results(answer)), read_end(answer)


def resend(engine: Engine, position: int, *batches: bytes, durability: int = raw.MEMORY) -> list:
    code, answer = engine.ask(layout.RESEND, encode_resend(position, raw.append(durability, *batches)))
    assert code == OK, answer
    assert read_end(answer) == engine.log.end_position
    return list(read_results(answer))


def stored(engine: Engine, topic_id: int, queue: int = 0) -> int:
    return engine.log.bounds(topic_id, queue)[1]


@pytest.mark.parametrize("durability", [raw.MEMORY, raw.FSYNC])
def test_answers_of_appends_end_with_the_end_of_the_log(engine, durability):
    topic_id = engine.topic()
    _, first = append(engine, raw.batch(topic_id, 0, [b"a\0"]), durability=durability)
    assert first == engine.log.end_position
    _, second = append(engine, raw.batch(topic_id, 0, [b"b\0"]), durability=durability)
    assert second == engine.log.end_position > first


@pytest.mark.parametrize("durability", [raw.MEMORY, raw.FSYNC])
def test_what_is_stored_is_answered_and_what_is_missing_is_appended(engine, durability):
    topic_id = engine.topic()
    _, position = append(engine, raw.batch(topic_id, 0, [b"before\0"]))
    first, second = raw.batch(topic_id, 0, [b"a\0", b"b\0"]), raw.batch(topic_id, 1, [b"c\0"])
    third = raw.batch(topic_id, 0, [b"d\0"])
    append(engine, first)
    assert resend(engine, position, first, second, third, durability=durability) == [(OK, 0, 1), (OK, 0, 0), (OK, 0, 3)]
    assert resend(engine, position, first, second, third, durability=durability) == [(OK, 0, 1), (OK, 0, 0), (OK, 0, 3)]
    assert (stored(engine, topic_id), stored(engine, topic_id, 1)) == (4, 1)
    if durability == raw.FSYNC:
        assert engine.log.durable_position == engine.log.end_position


def test_what_lies_below_the_position_is_another_append(engine):
    topic_id = engine.topic()
    batch = raw.batch(topic_id, 0, [b"a\0"])
    _, position = append(engine, batch)
    assert resend(engine, position, batch) == [(OK, 0, 1)]


def test_a_batch_that_only_begins_like_a_stored_one_is_appended(engine):
    topic_id = engine.topic()
    append(engine, raw.batch(topic_id, 0, [b"a\0"]))
    assert resend(engine, 0, raw.batch(topic_id, 0, [b"a\0", b"b\0"])) == [(OK, 0, 1)]
    assert stored(engine, topic_id) == 3


def test_a_checked_id_is_no_duplicate_of_itself_and_one_of_another_message(engine):
    topic_id = engine.topic()
    batch = raw.checked(topic_id, 0, b"id-1")
    _, position = append(engine, raw.batch(topic_id, 0, [b"before\0"]))
    append(engine, batch)
    assert resend(engine, position, batch) == [(OK, 0, 1)]
    assert resend(engine, position, raw.checked(topic_id, 1, b"id-1")) == [(DUPLICATE, 0, 1)]
    assert resend(engine, engine.log.end_position, batch) == [(DUPLICATE, 0, 1)]
    assert stored(engine, topic_id) == 2 and stored(engine, topic_id, 1) == 0


def test_a_request_is_found_with_its_token(engine):
    topic_id = engine.topic()
    token, other = b"t" * TOKEN_SIZE, b"u" * TOKEN_SIZE
    batch = encode_batch(topic_id, 0, [encode_record(b"ask\0", b"i" * 16, token)])
    append(engine, batch)
    assert resend(engine, 0, batch) == [(OK, 0, 0)]
    assert resend(engine, 0, encode_batch(topic_id, 0, [encode_record(b"ask\0", b"i" * 16, other)])) == [(OK, 0, 1)]


def test_unknown_topics_and_malformed_batches_are_refused_as_by_append(engine):
    topic_id = engine.topic()
    good = raw.batch(topic_id, 0, [b"a\0"])
    unknown, no_queue = raw.batch(99, 0, [b"a\0"]), raw.batch(topic_id, 9, [b"a\0"])
    cut = good[:4] + b"\xff\xff\0\0" + good[8:]
    append(engine, good)
    assert [code for code, _, _ in resend(engine, 0, unknown, good, no_queue, cut, good)] == [
        layout.UNKNOWN_TOPIC, OK, INVALID, INVALID, INVALID
    ]  # fmt: skip
    assert stored(engine, topic_id) == 1
    payload = raw.append(raw.MEMORY, good)
    for bad in (b"", b"1234567", encode_resend(0, b""), encode_resend(0, b"\5" + payload[1:])):
        assert engine.ask(layout.RESEND, bad)[0] == INVALID


def test_what_the_log_cannot_tell_may_be_stored(engine, monkeypatch):
    topic_id = engine.topic()
    first, second = raw.batch(topic_id, 0, [b"a\0"]), raw.batch(topic_id, 0, [b"b\0"])
    append(engine, first)
    find = engine.log.batch_search.find
    monkeypatch.setattr(
        engine.log.batch_search, "find", lambda *asked: {at: (found, False) for at, (found, _) in find(*asked).items()}
    )
    assert resend(engine, 0, first, second) == [(OK, 0, 0), (TIMEOUT, 0, 0)]
    assert stored(engine, topic_id) == 1


def test_without_room_what_is_stored_is_still_answered(engine):
    topic_id = engine.topic()
    first, second = raw.batch(topic_id, 0, [b"a\0"]), raw.batch(topic_id, 0, [b"b\0"])
    append(engine, first)
    engine.log.refusal.refuse("no room")
    assert resend(engine, 0, first, second) == [(OK, 0, 0), (205, 0, 0)]
    assert engine.ask(layout.RESEND, encode_resend(0, raw.append(raw.MEMORY, second))) == (205, b"no room")
    engine.log.refusal.follow("b leads")
    assert engine.ask(layout.RESEND, encode_resend(0, raw.append(raw.MEMORY, first, second)))[0] == layout.NOT_MASTER
    engine.log.refusal.follow("")
    engine.log.refusal.refuse("")
    assert resend(engine, 0, first, second) == [(OK, 0, 0), (OK, 0, 1)]


def test_a_pull_that_waits_gets_what_a_resend_appends(engine):
    topic_id = engine.topic()
    answers = []
    pull = encode_pull("g", [("orders", 2)], wait_ms=5_000)
    engine.rpc.send(layout.PULL, pull, lambda code, payload: answers.append(code))
    turn_until(lambda: engine.delivery.parked == 1)
    assert resend(engine, 0, raw.batch(topic_id, 0, [b"a\0"])) == [(OK, 0, 0)]
    turn_until(lambda: answers == [OK])
