"""Looking into topics through a real link: by offset, time, id and key, over pages; groups are left alone."""

import struct
import time

import pytest

from common.keyhash import queue_of
from engine.client import lookup
from engine.client.admin import AdminError
from tests import link_bytes as raw
from tests.contract.test_link_server import FORMS, NATIVE, Engine

QUEUES = 4


class Link:
    """What an AdminClient is, over the loop's own connection."""

    def __init__(self, engine: Engine) -> None:
        self.call, self.ask = engine.ask, engine.admin


@pytest.fixture(params=FORMS)
def engine(request, tmp_path):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = Engine(tmp_path / "engine", request.param)
    yield made
    made.close()


def text(field: int, value: bytes) -> bytes:
    return struct.pack(">bhi", 11, field, len(value)) + value


def message(body: bytes, key: bytes | None = None, shown: bytes | None = None) -> bytes:
    names = (text(3, key) if key is not None else b"") + (text(6, shown) if shown is not None else b"")
    return text(2, body) + names + b"\0"


def store(engine: Engine, topic_id: int, queue: int, *messages: bytes) -> None:
    code, answer = engine.ask(raw.APPEND, raw.append(raw.MEMORY, raw.batch(topic_id, queue, list(messages))))
    assert (code, raw.results(answer)[0][0]) == (0, 0)


def test_browsing_gives_a_queues_messages_from_an_offset_on(engine, monkeypatch):
    monkeypatch.setattr(lookup, "PAGE_MESSAGES", 3)
    topic_id, sent = engine.topic(queues=QUEUES), [message(b"%d" % number) for number in range(10)]
    store(engine, topic_id, 1, *sent)
    found = lookup.browse(Link(engine), "orders", 1, 4, 5)
    assert [(each.queue, each.offset, each.message) for each in found] == [(1, at, sent[at]) for at in range(4, 9)]
    assert len(lookup.browse(Link(engine), "orders", 1, 0, 100)) == 10
    assert lookup.browse(Link(engine), "orders", 1, 10, 5) == []
    assert lookup.browse(Link(engine), "orders", 2, 0, 5) == []


def test_what_was_stored_since_a_moment_comes_in_the_order_of_time_over_all_queues(engine, monkeypatch):
    topic_id, now_ms = engine.topic(queues=QUEUES), time.time_ns() // 1_000_000 + 1_000
    for number in range(12):
        batch = raw.batch(topic_id, number * 7 % QUEUES, [message(b"%d" % number)])
        engine.log.append(batch, 1, now_ms + number)
    found = lookup.since(Link(engine), "orders", now_ms + 3, 5)
    assert [each.stored_at_ms - now_ms for each in found] == [3, 4, 5, 6, 7]
    assert len(lookup.since(Link(engine), "orders", 0, 100)) == 12
    assert lookup.since(Link(engine), "orders", now_ms + 12, 5) == []


def test_a_key_finds_its_own_messages_and_none_whose_body_only_looks_like_it(engine):
    topic_id = engine.topic(queues=QUEUES)
    queue = queue_of(b"anna", QUEUES)
    store(
        engine,
        topic_id,
        queue,
        message(b"1", b"anna"),
        message(b"anna", b"bert"),
        message(b"2", b"anna-2"),
        message(b"3", b"anna"),
    )
    assert [each.offset for each in lookup.by_key(Link(engine), "orders", "anna", 0, 10)] == [0, 3]
    assert [each.offset for each in lookup.by_key(Link(engine), "orders", "anna", 0, 1)] == [0]
    assert lookup.by_key(Link(engine), "orders", "carl", 0, 10) == []


def test_a_clients_id_is_found_in_whatever_queue_and_as_often_as_it_was_stored(engine):
    topic_id = engine.topic(queues=QUEUES)
    store(engine, topic_id, 3, message(b"x", shown=b"a"), message(b"a", shown=b"b"))
    store(engine, topic_id, 1, message(b"y", shown=b"a"))
    found = lookup.by_id(Link(engine), "orders", "a")
    assert sorted((each.queue, each.offset, each.id) for each in found) == [(1, 0, "a"), (3, 0, "a")]
    assert lookup.by_id(Link(engine), "orders", "c") == []


def test_an_assigned_id_is_looked_for_around_its_own_time(engine):
    topic_id, own_ms = engine.topic(queues=QUEUES), time.time_ns() // 1_000_000 + 4_000_000
    id16 = own_ms.to_bytes(6, "big") + bytes(10)
    record = struct.pack("<IB", 17 + len(message(b"x")), 1) + id16 + message(b"x")
    head = struct.pack("<IIHBBIIIIIQq", 0, 48 + len(record), 0x5042, 0, 0, 0, topic_id, 2, 1, 0, 0, 0)
    for stored_ms in (own_ms - 3_600_000, own_ms + 20, own_ms + 3_600_000):
        engine.log.append(head + record + bytes(-len(record) % 8), 1, stored_ms)
    assert [each.offset for each in lookup.by_id(Link(engine), "orders", id16.hex())] == [1]
    assert [each.offset for each in lookup.by_id(Link(engine), "orders", id16.hex(), own_ms + 21)] == [2]


def test_looking_moves_no_group_and_leases_nothing(engine):
    store(engine, engine.topic(), 0, message(b"x", shown=b"a"))
    lookup.by_id(Link(engine), "orders", "a")
    assert engine.pull()[1][0].attempt == 1


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (lambda link: lookup.since(link, "nosuch", 0, 1), 102),
        (lambda link: lookup.since(link, "order", 0, 1), 102),
        (lambda link: lookup.browse(link, "nosuch", 0, 0, 1), 102),
        (lambda link: lookup.browse(link, "orders", 9, 0, 1), 100),
        (lambda link: lookup.browse(link, "orders", 0, 5, 1), 107),
    ],
)
def test_what_is_not_there_is_refused_with_a_code_and_a_sentence(engine, asked, code):
    engine.topic()
    with pytest.raises(AdminError) as refused:
        asked(Link(engine))
    assert refused.value.code == code and str(refused.value)
