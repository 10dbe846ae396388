"""Delayed messages over the link, the same from the native form of the server and from its twin, on a real log and the real clock."""

import json
import time

import gevent
import pytest

from engine.client.timers import ANY_QUEUE, Timer, decode_added, encode_add, encode_cancel
from engine.link import layout
from engine.link.pieces import AnswerPiece
from engine.server.native import NATIVE
from tests.contract.link_engine import Engine as LinkEngine


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Engine(LinkEngine):
    """An engine with one topic."""

    def __init__(self, directory, form: str) -> None:
        super().__init__(directory, form)
        (self.orders,) = self.log.create_topics([("orders", 2)])

    def add(self, number: int, due_ms: int, durability: int = layout.FSYNC, **changes) -> int:
        record = b"\1" + number.to_bytes(16, "big") + b"m\0"
        timer = Timer(due_ms, self.orders.id, ANY_QUEUE, 0, 0, 0, 0, 1, 1, 16, 0, record)._replace(**changes)
        code, answer = self.ask(layout.TIMER_ADD, encode_add(durability, [timer]))
        assert code == layout.OK, answer
        return decode_added(answer)[0][0]

    def cancel(self, number: int) -> int:
        return self.ask(layout.TIMER_CANCEL, encode_cancel(layout.FSYNC, "orders", number.to_bytes(16, "big").hex()))[0]

    def pulled(self, **options) -> list[AnswerPiece]:
        return self.pull(**options)[1]

    def list(self, **changes) -> tuple[int, dict | str]:
        request = {"topic": "orders", "start": 0, "limit": 100} | changes
        code, payload = self.ask(layout.TIMER_LIST, json.dumps(request).encode())
        return code, json.loads(payload) if code == layout.OK else payload.decode()


@pytest.fixture(params=["native", "twin"])
def engine(request, tmp_path):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = Engine(tmp_path / "engine", request.param)
    yield made
    made.close()


def test_a_waiting_pull_gets_a_delayed_message_when_it_is_due(engine):
    due_ms = now_ms() + 150
    assert engine.add(1, due_ms) == layout.OK
    assert engine.pulled() == []
    (piece,) = engine.pulled(wait_ms=5000)
    assert due_ms <= piece.stored_at_ms < due_ms + 100
    assert piece.records[5:21] == (1).to_bytes(16, "big")


@pytest.mark.parametrize("durability", [layout.MEMORY, layout.FSYNC])
def test_an_answer_means_what_was_asked_for(engine, durability):
    assert engine.add(1, now_ms() + 60_000, durability) == layout.OK
    assert durability == layout.MEMORY or engine.log.durable_position == engine.log.end_position


def test_a_cancelled_message_is_gone_and_cannot_be_cancelled_again(engine):
    engine.add(1, now_ms() + 100)
    assert [engine.cancel(1), engine.cancel(1), engine.cancel(2)] == [
        layout.OK, layout.NOT_CANCELLABLE, layout.NOT_CANCELLABLE
    ]  # fmt: skip
    assert engine.pulled(wait_ms=200) == []


def test_pending_messages_are_listed_by_topic_and_page(engine):
    due_ms = now_ms() + 60_000
    for number in range(5):
        engine.add(number, due_ms + number, gap_ms=1000, times=2)
    code, page = engine.list(limit=2)
    assert (code, len(page["timers"])) == (layout.OK, 2)
    _, rest = engine.list(start=page["next"])
    rows = page["timers"] + rest["timers"]
    assert rest["next"] == -1
    assert sorted(row["due_ms"] for row in rows) == [due_ms + number for number in range(5)]
    assert rows[0]["topic"] == "orders" and rows[0]["rounds"] == 3 and rows[0]["gap_ms"] == 1000
    assert engine.list(topic="other") == (layout.UNKNOWN_TOPIC, "topic 'other': the engine has no such topic")


@pytest.mark.parametrize(
    ("op", "payload"),
    [
        (layout.TIMER_ADD, b""), (layout.TIMER_ADD, b"\x01\0\0\0\0\0\0\0"), (layout.TIMER_ADD, b"\x07\0\0\0\x01\0\0\0" + bytes(90)),
        (layout.TIMER_ADD, b"\x01\0\0\0\xff\xff\xff\xff" + bytes(90)), (layout.TIMER_CANCEL, b"[]"), (layout.TIMER_CANCEL, b"{}"),
        (layout.TIMER_CANCEL, b"\xff"), (layout.TIMER_LIST, b'{"start": -1, "limit": 5}'), (layout.TIMER_LIST, b'{"start": 0, "limit": 0}'),
    ],
)  # fmt: skip
def test_requests_that_make_no_sense_are_invalid(engine, op, payload):
    code, sentence = engine.ask(op, payload)
    assert (code, bool(sentence)) == (layout.INVALID, True)


def test_records_of_any_bytes_are_refused_one_by_one(engine):
    for records in (bytes(70), b"\xff" * 70, bytes(range(70))):
        code, answer = engine.ask(layout.TIMER_ADD, layout.APPEND_HEAD.pack(1, 1) + records)
        assert (code, decode_added(answer)) == (layout.OK, [(layout.INVALID, None, None)])


def test_no_timer_runs_while_nothing_is_pending(engine):
    assert engine.node._firing.due_ms is None
    engine.add(1, now_ms() + 20)
    with gevent.Timeout(5):
        while engine.node._firing.due_ms is not None:
            gevent.sleep(0.01)
    assert len(engine.pulled()) == 1
