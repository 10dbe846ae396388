"""Reads far behind the end of the log: the master leaves them to a slave, and serves what a slave cannot."""

import json

import pytest

from engine.client import master_client
from engine.client.dial import Hello
from engine.client.far_reads import REST_S, FarReads
from engine.link import layout
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion, offered_to_slaves
from tests.services.fake_broker import wait_until
from tests.unit.engine.client.test_master_client import Desk

MASTER = Hello("a" * 32, "main", leads=True)
QUESTION = ReadQuestion([ReadPosition("orders", 0, 7)]).encode()


class Link:
    def __init__(self, log_id: str = "a" * 32, leads: bool = False) -> None:
        self.connected, self.hello = True, Hello(log_id, "main", leads=leads)


def test_slaves_of_the_masters_log_are_asked_in_turn():
    links = [Link(leads=True), Link(), Link(), Link("b" * 32)]
    reads = FarReads(links)
    assert [links.index(reads.next_slave(MASTER)) for _ in range(4)] == [1, 2, 1, 2]
    links[1].connected = False
    assert reads.has_slave(MASTER) and [links.index(reads.next_slave(MASTER)) for _ in range(2)] == [2, 2]
    links[2].connected = False
    assert not reads.has_slave(MASTER) and reads.next_slave(MASTER) is None and reads.next_slave(None) is None


def test_a_slave_that_was_late_rests():
    now = [0.0]
    links = [Link(), Link()]
    reads = FarReads(links, lambda: now[0])
    reads.was_late(links[1])
    assert reads.next_slave(MASTER) is links[0] and reads.next_slave(MASTER) is links[0]
    now[0] = REST_S
    assert reads.next_slave(MASTER) is links[1]


def answer(code: int, next_offset: int) -> tuple[int, bytes]:
    report = json.dumps({"reports": [{"code": code, "next_offset": next_offset}]}).encode()
    return 0, layout.U32.pack(len(report)) + report + layout.U32.pack(0)


@pytest.fixture
def desk(monkeypatch):
    """A master that leaves reads to slaves if the sender allows it, and a slave whose answers a test gives."""
    made = Desk()
    wait_until(lambda: all(each.connected for each in made.client._links))
    plain = made.first._answer, made.second._answer
    made.slave_answer = answer(0, 8)

    def of_master(op, payload):
        if op == layout.READ and json.loads(payload).get("slaves"):
            made.first.asked.append((op, payload))
            return layout.AT_SLAVE, b"far behind the end"
        return answer(0, 9) if op == layout.READ else plain[0](op, payload)

    def of_slave(op, payload):
        plain[1](op, payload)
        made.second.answers.wait()
        return made.slave_answer

    monkeypatch.setattr(made.first, "_answer", of_master)
    monkeypatch.setattr(made.second, "_answer", of_slave)
    yield made
    made.close()


def next_offset(answers) -> int:
    """From the only answer of a READ, once it is there."""
    wait_until(lambda: answers)
    ((code, payload),) = answers
    assert code == 0
    return ReadAnswer.decode(payload).reports[0].next_offset


def test_a_read_that_the_master_leaves_is_answered_by_the_slave(desk):
    assert next_offset(desk.ask(layout.READ, QUESTION)) == 8
    assert [json.loads(payload).get("slaves") for _, payload in desk.second.asked] == [None]


@pytest.mark.parametrize(
    "refusal", [answer(layout.OFFSET_OUT_OF_RANGE, 0), (layout.NOT_MASTER, b"it does not follow"), (0, b"no answer")]
)
def test_what_a_slave_does_not_have_is_read_from_the_master(desk, refusal):
    desk.slave_answer = refusal
    assert next_offset(desk.ask(layout.READ, QUESTION)) == 9


def test_a_slave_that_is_late_is_not_waited_for_and_not_asked_again(desk, monkeypatch):
    monkeypatch.setattr(master_client, "LATE_S", 0.05)
    desk.second.answers.clear()
    assert next_offset(desk.ask(layout.READ, QUESTION)) == 9
    assert next_offset(desk.ask(layout.READ, QUESTION)) == 9
    assert len(desk.second.asked) == 1
    desk.second.answers.set()


def test_a_read_is_asked_of_the_master_when_the_slaves_link_breaks(desk):
    desk.second.answers.clear()
    answers = desk.ask(layout.READ, QUESTION)
    wait_until(lambda: desk.second.asked)
    desk.second.break_links()
    assert next_offset(answers) == 9


def test_without_a_slave_the_master_is_not_offered_to_leave_it(desk):
    desk.second.stop()
    wait_until(lambda: not desk.client._links[1].connected)
    assert next_offset(desk.ask(layout.READ, QUESTION)) == 9


def test_other_requests_carry_no_offer(desk):
    assert desk.client.call(layout.TOPIC, json.dumps({"topics": [{"name": "orders", "queues": 1}]}).encode(), 3)[0] == 0


def test_an_offer_is_one_more_field_of_the_request():
    assert json.loads(offered_to_slaves(QUESTION)) == {**json.loads(QUESTION), "slaves": True}
