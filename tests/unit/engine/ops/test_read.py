"""READ on a log in memory: shares, waiting, damage."""

import json

import pytest

from engine.delivery.topic_uses import TopicUses
from engine.env.native import NodeClock
from engine.errors import CorruptionError
from engine.log.memory import MemoryLog
from engine.ops.errors import RequestError
from engine.ops.read import PositionRead, PositionReads
from engine.ops.waiting import WaitingRequests


class Asker:
    def __init__(self, queues: int = 2) -> None:
        self.log, self.answers = MemoryLog(), []
        self.topic = self.log.create_topics([("orders", queues)])[0].id
        self.reads = PositionReads(self.log, NodeClock(), WaitingRequests(lambda: None), TopicUses())

    def read(self, *positions: dict, now_ms: int = 0, **options) -> bool:
        request = {"positions": [{"topic": "orders", **position} for position in positions], **options}
        return self.reads.start(PositionRead(json.dumps(request).encode(), self.answers.append), now_ms, may_wait=True)

    def reports(self) -> list[dict]:
        return [position.report for position in self.answers[-1].positions]


@pytest.fixture
def asker():
    return Asker()


def test_positions_share_what_one_read_may_give(asker):
    for queue in range(2):
        asker.log.store(asker.topic, queue, [b"x"] * 10, 5)
    asker.read({"queue": 0, "offset": 0}, {"queue": 1, "offset": 0}, max_messages=6)
    assert [report["next_offset"] for report in asker.reports()] == [3, 3]


def test_a_position_by_time_starts_at_the_first_message_of_that_time(asker):
    asker.log.store(asker.topic, 0, [b"x"] * 3, 100)
    asker.log.store(asker.topic, 0, [b"y"] * 3, 200)
    asker.read({"queue": 0, "at_time_ms": 150}, max_messages=1)
    assert asker.reports()[0]["next_offset"] == 4


def test_below_what_retention_left_the_earliest_is_named(asker):
    asker.log.store(asker.topic, 0, [b"x"] * 9, 1)
    asker.log.retain(asker.topic, 0, 4)
    asker.read({"queue": 0, "offset": 3}, wait_ms=1_000)
    assert (asker.reports()[0]["code"], asker.reports()[0]["min_offset"]) == (107, 4)


def test_a_waiting_read_is_answered_once_when_two_of_its_queues_wake(asker):
    assert asker.read({"queue": 0, "offset": 0}, {"queue": 1, "offset": 0}, wait_ms=1_000)
    for queue in range(2):
        asker.log.store(asker.topic, queue, [b"x"], 1)
    asker.reads.on_woken(asker.log.take_woken())
    assert len(asker.answers) == 1 and asker.answers[0].piece_count == 2


def test_a_waiting_read_is_answered_empty_in_the_end_and_a_withdrawn_one_never(asker):
    asker.read({"queue": 0, "offset": 0}, wait_ms=1_000)
    asker.reads.on_time(900)
    assert asker.reads.next_at_ms(900) == 1_000 and not asker.answers
    asker.reads.on_time(1_020)
    assert asker.reads.next_at_ms(1_020) is None
    assert asker.answers[0].piece_count == 0


def test_a_range_that_is_read_out_does_not_wait(asker):
    asker.log.store(asker.topic, 0, [b"x"] * 3, 1)
    assert not asker.read({"queue": 0, "offset": 3, "end_offset": 3}, wait_ms=1_000)


def test_damage_is_reported_with_where_to_go_on(asker):
    def damaged(*_):
        raise CorruptionError("log/0.seg", 64, 100, "checksum", next_offset=2)

    asker.log.store(asker.topic, 0, [b"x"] * 3, 1)
    asker.log.read = damaged
    asker.read({"queue": 0, "offset": 0})
    assert (asker.reports()[0]["code"], asker.reports()[0]["next_offset"]) == (203, 2)


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{}", b'{"positions": [1]}', b'{"positions": [{"topic": "t"}]}', b'{"positions": [{"topic": 1, "queue": 0}]}',
     b'{"positions": [{"topic": "t", "queue": true}]}', b'{"positions": [], "wait_ms": "1"}', b"[" * 200_000],
)  # fmt: skip
def test_a_read_that_makes_no_sense_is_refused(payload):
    with pytest.raises(RequestError):
        PositionRead(payload, lambda read: None)
