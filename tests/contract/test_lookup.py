"""Looking into topics through a real link: by offset, time, id and key, over pages; groups are left alone.

By id and key in two ways: by the engine's look-up, and by reading where it has none.
"""

import json
import struct
import time

import gevent
import pytest

from common.keyhash import queue_of
from engine.client import lookup
from engine.client.admin import AdminError
from engine.link import layout
from engine.link.look_up import decode_look_up_answer
from engine.link.read import ReadAnswer
from engine.link.record import split_records
from engine.log.lookup_index.maker import IDLE_S
from engine.log.lookup_index.search import LookupSearch
from engine.log.read.retentions import Retention
from engine.server.native import NATIVE
from tests import link_bytes as raw
from tests.contract.link_engine import FORMS, Engine

QUEUES = 4


class Link:
    """What an AdminClient is, over the loop's own connection."""

    def __init__(self, engine: Engine) -> None:
        self.call, self.ask = engine.ask, engine.admin


FAMILIES = {"files": ("id", "key"), "reading": ()}


@pytest.fixture(params=[f"{form}-{way}" for form in FORMS for way in FAMILIES])
def engine(request, tmp_path):
    form, way = request.param.split("-")
    if form == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = Engine(tmp_path / "engine", form, segment_bytes=1 << 16, look_up=FAMILIES[way])
    yield made
    made.close()


@pytest.fixture(params=FORMS)
def with_files(request, tmp_path):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = Engine(tmp_path / "engine", request.param, segment_bytes=1 << 16)
    yield made
    made.close()


def make_files(engine: Engine) -> None:
    """Have lookup files made of all sealed segments."""
    engine.log.checkpoint()
    next(pause_s for pause_s in engine.log.look_up.maker.steps() if pause_s == IDLE_S)


def look(engine: Engine, op: int, **asked):
    """(report, [(queue, offset)], pieces) of one request."""
    code, answer = engine.ask(op, json.dumps({"topic": "orders", **asked}).encode())
    assert code == 0, answer
    report, pieces = decode_look_up_answer(answer)
    return report, [(piece.queue, piece.first_offset) for piece in pieces], pieces


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


def test_a_look_since_a_moment_reads_about_what_it_shows(engine):
    topic_id, read = engine.topic(queues=QUEUES), []
    for queue in range(QUEUES):
        store(engine, topic_id, queue, *[message(b"%d" % number) for number in range(400)])

    class Counting(Link):
        def call(self, op: int, payload: bytes) -> tuple[int, bytes]:
            code, answer = engine.ask(op, payload)
            read.extend(each for piece in ReadAnswer.decode(answer).pieces() for each in split_records(piece.records))
            return code, answer

    link = Counting.__new__(Counting)
    link.ask = engine.admin
    assert len(lookup.since(link, "orders", 0, 200)) == 200
    assert len(read) <= 3 * 200


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


def test_an_assigned_id_is_read_for_around_its_own_time_and_looked_up_at_any(engine):
    topic_id, own_ms = engine.topic(queues=QUEUES), time.time_ns() // 1_000_000 + 4_000_000
    id16 = own_ms.to_bytes(6, "big") + bytes(10)
    record = struct.pack("<IB", 17 + len(message(b"x")), 1) + id16 + message(b"x")
    head = struct.pack("<IIHBBIIIIIQq", 0, 48 + len(record), 0x5042, 0, 0, 0, topic_id, 2, 1, 0, 0, 0)
    for stored_ms in (own_ms - 3_600_000, own_ms + 20, own_ms + 3_600_000):
        engine.log.append(head + record + bytes(-len(record) % 8), 1, stored_ms)
    told: list[str] = []
    found = lookup.by_id(Link(engine), "orders", id16.hex(), tell=told.append)
    assert [each.offset for each in found] == ([1] if told else [0, 1, 2])
    assert bool(told) == (not engine.log.look_up.families)
    assert [each.offset for each in lookup.by_id(Link(engine), "orders", id16.hex(), own_ms + 21)] == [2]


def test_names_are_found_in_sealed_segments_and_in_the_open_one(engine, monkeypatch):
    monkeypatch.setattr(lookup, "LOOK_UP_MESSAGES", 7)
    topic_id, queue = engine.topic(queues=QUEUES), queue_of(b"anna", QUEUES)
    for number in range(90):
        store(engine, topic_id, queue, message(bytes(3000), b"anna" if number % 3 else b"bert", b"id-%d" % number))
        if number == 70:
            make_files(engine)
    link, annas = Link(engine), [number for number in range(90) if number % 3]
    assert [each.offset for each in lookup.by_key(link, "orders", "anna", 0, 1000)] == annas
    assert [each.offset for each in lookup.by_key(link, "orders", "anna", 0, 10)] == annas[:10]
    for number in (0, 33, 70, 89):
        (found,) = lookup.by_id(link, "orders", f"id-{number}")
        assert (found.queue, found.offset, found.id) == (queue, number, f"id-{number}")
        assert found.message == message(bytes(3000), b"anna" if number % 3 else b"bert", b"id-%d" % number)


def test_a_request_is_one_slice_and_says_where_the_next_goes_on(with_files):
    engine = with_files
    topic_id = engine.topic(queues=QUEUES)
    store(engine, topic_id, 1, *[message(b"%d" % number, b"k") for number in range(5)])
    store(engine, topic_id, 2, message(b"6", b"k"))
    report, first, pieces = look(engine, layout.LOOK_UP_KEY, key="k", limit=3)
    assert first == [(1, 0), (1, 1), (1, 2)] and all(piece.records for piece in pieces)
    report, second, pieces = look(engine, layout.LOOK_UP_KEY, key="k", next=report["next"], records=False)
    assert second == [(1, 3), (1, 4), (2, 0)] and report["next"] is None
    assert not any(piece.records for piece in pieces) and all(piece.stored_at_ms for piece in pieces)


def test_what_lies_below_the_readable_offset_is_not_shown(with_files):
    engine = with_files
    topic_id = engine.topic(queues=QUEUES)
    store(engine, topic_id, 0, message(b"", b"k", b"i"))
    store(engine, topic_id, 0, message(b"", b"k", b"i"))

    class Short:
        generation, is_known = 1, True

        def of(self, topic: str) -> Retention:
            return Retention(size_bytes=1)

    engine.log.start_offsets.policy = Short()
    assert look(engine, layout.LOOK_UP_KEY, key="k")[1] == look(engine, layout.LOOK_UP_ID, id="i")[1] == [(0, 1)]


def test_many_look_ups_at_once_are_all_answered_and_too_many_refused(with_files, monkeypatch):
    engine = with_files
    store(engine, engine.topic(), 0, message(b"x", b"k"))
    wanted = json.dumps({"topic": "orders", "key": "k"}).encode()
    asking = [gevent.spawn(engine.ask, layout.LOOK_UP_KEY, wanted) for _ in range(200)]
    codes = [each.get(timeout=30)[0] for each in asking]
    assert set(codes) <= {0, layout.OVERLOADED} and codes.count(0) >= 64
    assert look(engine, layout.LOOK_UP_KEY, key="k")[1] == [(0, 0)]


def test_a_search_that_fails_is_answered_and_hurts_nobody_else(with_files, monkeypatch):
    engine = with_files
    store(engine, engine.topic(), 0, message(b"x", b"k"))

    def fail(search: LookupSearch) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as broken:
        broken.setattr(LookupSearch, "run", fail)
        code, sentence = engine.ask(layout.LOOK_UP_KEY, b'{"topic": "orders", "key": "k"}')
    assert code == layout.UNAVAILABLE and b"internal error" in sentence
    assert look(engine, layout.LOOK_UP_KEY, key="k")[1] == [(0, 0)]


def test_who_hangs_up_is_forgotten_and_the_engine_goes_on(with_files):
    engine = with_files
    store(engine, engine.topic(), 0, message(b"x", b"k"))
    for _ in range(5):
        link = engine.raw()
        link.send(layout.LOOK_UP_KEY, json.dumps({"topic": "orders", "key": "k"}).encode())
        link.sock.close()
    assert look(engine, layout.LOOK_UP_KEY, key="k")[1] == [(0, 0)]


@pytest.mark.parametrize(
    ("asked", "code", "names"),
    [
        (b"[]", 100, "JSON object"),
        (b"\xff{", 100, "JSON object"),
        (b'{"topic": "nosuch", "id": "a"}', 102, "topic"),
        (b'{"topic": 7, "id": "a"}', 102, "topic"),
        (b'{"topic": "orders"}', 100, "id"),
        (b'{"topic": "orders", "id": ""}', 100, "id"),
        (b'{"topic": "orders", "id": 5}', 100, "id"),
        (b'{"topic": "orders", "id": "%s"}' % (b"x" * 70_000), 100, "id"),
        (b'{"topic": "orders", "id": "a", "limit": 0}', 100, "limit"),
        (b'{"topic": "orders", "id": "a", "limit": 1001}', 100, "limit"),
        (b'{"topic": "orders", "id": "a", "limit": true}', 100, "limit"),
        (b'{"topic": "orders", "id": "a", "from_ms": -1}', 100, "from_ms"),
        (b'{"topic": "orders", "id": "a", "to_ms": "now"}', 100, "to_ms"),
        (b'{"topic": "orders", "id": "a", "next": 5}', 100, "next"),
        (b'{"topic": "orders", "id": "a", "next": [0, -1]}', 100, "next"),
        (b'{"topic": "orders", "id": "a", "next": [9223372036854775808, 0]}', 100, "next"),
    ],
)
def test_a_look_up_that_cannot_be_is_refused_with_what_is_wrong(with_files, asked, code, names):
    with_files.topic()
    found, sentence = with_files.ask(layout.LOOK_UP_ID, asked)
    assert found == code and names in sentence.decode()
    assert with_files.ask(layout.LOOK_UP_ID, b'{"topic": "orders", "id": "\\ud800", "next": [5, 5]}')[0] == 0


def test_an_engine_without_files_refuses_and_its_status_says_so(engine):
    engine.topic()
    families = list(engine.log.look_up.families)
    assert engine.admin("status")["look_up"] == families
    for op, field in ((layout.LOOK_UP_ID, "id"), (layout.LOOK_UP_KEY, "key")):
        code, _ = engine.ask(op, json.dumps({"topic": "orders", field: "a"}).encode())
        assert code == (0 if families else layout.INVALID)


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
