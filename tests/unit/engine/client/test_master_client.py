"""Requests to the master of a group of two brokers, before, during and after a switch."""

import json

import gevent
import pytest

from engine.client import master_client
from engine.client.master_client import MasterClient
from engine.client.timers import ANY_QUEUE, Timer, encode_add
from engine.link import layout
from engine.link.errors import LinkDown
from engine.link.pull import decode_request, encode_pull
from tests.services.fake_broker import KEY, wait_until
from tests.services.fake_member import FakeMember

TOPIC = json.dumps({"topics": [{"name": "orders", "queues": 1}]}).encode()


class Desk:
    def __init__(self) -> None:
        self.first, self.second = FakeMember("a", leads=True), FakeMember("b")
        self.downs = self.ups = 0
        self.hellos = []
        self.client = MasterClient(
            [self.first.address, self.second.address], KEY, role="test", on_hello=self.hellos.append, on_down=self.down
        )
        self.client.attend(self.up, lambda payload: None)
        assert self.client.wait_connected(3)

    def up(self) -> None:
        self.ups += 1

    def down(self) -> None:
        self.downs += 1

    def ask(self, op: int, payload: bytes) -> list[tuple[int, bytes]]:
        """Ask without waiting; the answer comes into the list."""
        answers: list[tuple[int, bytes]] = []
        self.client.send(op, payload, lambda code, answer: answers.append((code, answer)))
        return answers

    def close(self) -> None:
        self.client.close()
        for each in (self.first, self.second):
            each.go.set()
            each.answers.set()
            each.stop()


@pytest.fixture
def desk():
    made = Desk()
    yield made
    made.close()


def ops(broker: FakeMember) -> list[int]:
    return [op for op, _ in broker.asked]


def test_requests_go_to_the_broker_that_leads(desk):
    assert desk.client.call(layout.TOPIC, TOPIC, 3)[0] == 0
    assert (ops(desk.first), ops(desk.second), desk.ups) == ([layout.TOPIC], [], 1)
    assert [hello.broker for hello in desk.hellos] == ["a"]
    assert desk.client.master == desk.first.address


def test_what_may_be_repeated_is_asked_again_and_the_rest_is_refused(desk):
    desk.first.answers.clear()
    topic, claim = desk.ask(layout.TOPIC, TOPIC), desk.ask(layout.CLAIM, b'{"ids": []}')
    cancelled = desk.ask(layout.TIMER_CANCEL, b'{"id": "1"}')
    wait_until(lambda: len(desk.first.asked) > 0)
    desk.first.stop()
    wait_until(lambda: desk.client.master is None)
    wait_until(lambda: cancelled)
    assert cancelled[0][0] == layout.UNAVAILABLE and topic == [] and claim == []
    assert desk.client.connected and desk.client.seeks_master
    new = desk.ask(layout.TOPIC, TOPIC)
    desk.second.lead(2)
    wait_until(lambda: topic and new and claim)
    assert (topic[0][0], new[0][0], claim[0][0]) == (0, 0, 0)
    assert (desk.downs, desk.ups, ops(desk.second)) == (0, 2, [layout.TOPIC, layout.CLAIM, layout.TOPIC])
    assert not desk.client.seeks_master


def timer(number: int) -> bytes:
    """A TIMER_ADD of one message."""
    return encode_add(layout.FSYNC, [Timer(-5000, 1, ANY_QUEUE, 0, 0, 0, 0, 1, 1, 16, 0, b"\1" + bytes([number] * 16))])


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_delayed_message_whose_answer_was_lost_is_stored_once(desk, is_stored):
    desk.client.call(layout.TIMER_ADD, timer(1), 3)
    desk.client.known_end = lambda: 1
    desk.first.answers.clear()
    answers = desk.ask(layout.TIMER_ADD, timer(2))
    wait_until(lambda: len(desk.first.timers) == 2)
    desk.second.copy(desk.first)
    if not is_stored:
        del desk.second.timers[1], desk.second.log[1]
    desk.first.stop()
    desk.second.lead(2)
    wait_until(lambda: answers)
    assert answers[0][0] == 0
    assert (desk.second.timers_again, len(desk.second.timers)) == ([1], 2)


def test_a_delayed_message_that_a_broker_refused_because_it_does_not_lead_was_not_stored_there(desk):
    desk.first.refuses = True
    answers = desk.ask(layout.TIMER_ADD, timer(1))
    wait_until(lambda: desk.first.asked)
    desk.first.leads = False
    desk.second.lead(2)
    wait_until(lambda: answers)
    assert (answers[0][0], desk.second.timers_again, len(desk.second.timers)) == (0, [], 1)


def test_a_delayed_message_whose_answer_was_lost_may_be_stored_where_no_master_comes_or_one_with_another_log(
    desk, monkeypatch
):
    desk.first.answers.clear()
    answers = desk.ask(layout.TIMER_ADD, timer(1))
    wait_until(lambda: desk.first.timers)
    desk.second.log_id = "b" * 32
    desk.first.stop()
    desk.second.lead(2)
    wait_until(lambda: answers)
    monkeypatch.setattr(master_client, "SEEK_S", 0.1)
    desk.second.answers.clear()
    later = desk.ask(layout.TIMER_ADD, timer(2))
    wait_until(lambda: desk.second.timers)
    desk.second.stop()
    wait_until(lambda: later)
    assert [answers[0][0], later[0][0]] == [layout.TIMEOUT, layout.TIMEOUT]


def test_a_pull_is_asked_again_for_the_rest_of_its_time(desk):
    desk.first.answers.clear()
    answers = desk.ask(layout.PULL, encode_pull("g", [("orders", 1)], wait_ms=5_000))
    wait_until(lambda: desk.first.asked)
    gevent.sleep(0.2)
    desk.first.stop()
    desk.second.lead(2)
    wait_until(lambda: answers)
    ((_, again),) = desk.second.asked
    assert answers[0][0] == 0 and 3_000 < decode_request(again).wait_ms <= 4_800


def test_a_pull_that_was_withdrawn_meanwhile_does_not_wait_at_the_next_master(desk):
    desk.first.answers.clear()
    answers: list = []
    asked = encode_pull("g", [("orders", 1)], wait_ms=5_000)
    request_id = desk.client.send(layout.PULL, asked, lambda code, answer: answers.append(code))
    wait_until(lambda: desk.first.asked)
    desk.first.stop()
    wait_until(lambda: desk.client.master is None)
    desk.client.cancel(request_id)
    desk.second.lead(2)
    wait_until(lambda: answers)
    assert decode_request(desk.second.asked[0][1]).wait_ms == 0


def test_without_a_master_for_long_requests_are_refused_until_one_leads(desk, monkeypatch):
    monkeypatch.setattr(master_client, "SEEK_S", 0.1)
    desk.first.answers.clear()
    topic = desk.ask(layout.TOPIC, TOPIC)
    wait_until(lambda: desk.first.asked)
    desk.first.stop()
    wait_until(lambda: desk.downs == 1)
    assert topic[0][0] == layout.UNAVAILABLE and not desk.client.connected
    with pytest.raises(LinkDown, match="no master is known"):
        desk.ask(layout.TOPIC, TOPIC)
    desk.second.lead(2)
    assert desk.client.wait_connected(3) and desk.client.call(layout.TOPIC, TOPIC, 3)[0] == 0


def test_a_master_that_hangs_is_left_when_another_one_leads(desk):
    desk.first.answers.clear()
    topic = desk.ask(layout.TOPIC, TOPIC)
    wait_until(lambda: desk.first.asked)
    desk.second.lead(2)
    wait_until(lambda: topic)
    assert topic[0][0] == 0 and desk.client.master == desk.second.address


def test_a_broker_that_does_not_lead_any_more_is_left_whatever_it_was_asked(desk):
    desk.first.refuses = True
    claim = desk.ask(layout.CLAIM, b'{"ids": []}')
    wait_until(lambda: desk.first.asked)
    desk.first.leads = False
    desk.second.lead(2)
    wait_until(lambda: claim)
    assert claim[0][0] == 0, "it was refused, so asking again does nothing twice"


def test_a_broker_that_says_that_it_leads_and_refuses_is_not_asked_for_ever(desk):
    desk.first.refuses = True
    code, _ = desk.client.call(layout.CLAIM, b'{"ids": []}', 3)
    assert code == layout.UNAVAILABLE and len(desk.first.asked) <= master_client.TRIES_MAX


def test_an_old_master_that_comes_back_is_not_used(desk):
    desk.second.lead(2)
    wait_until(lambda: desk.client.master == desk.second.address)
    desk.second.leads = False
    desk.second.break_links()
    desk.first.break_links()
    gevent.sleep(0.1)
    assert desk.client.master is None, "it leads with a term that is over"
    desk.first.lead(3)
    wait_until(lambda: desk.client.master == desk.first.address)


def test_a_master_that_was_greeted_before_it_adopted_the_newest_record_is_greeted_again(desk):
    """Its slave has adopted the record first. The master stays, and does not end the link by itself."""
    desk.second.term, desk.second.epoch = 2, "adopted"
    desk.second.break_links()
    wait_until(lambda: desk.second.greeted["adopted"])
    desk.first.break_links()
    wait_until(lambda: desk.client.master is None)
    desk.first.term = 2
    wait_until(lambda: desk.client.master == desk.first.address)


def test_open_requests_end_when_the_client_is_closed(desk):
    desk.first.answers.clear()
    topic = desk.ask(layout.TOPIC, TOPIC)
    wait_until(lambda: desk.first.asked)
    desk.client.close()
    wait_until(lambda: topic)
    assert topic[0][0] == layout.UNAVAILABLE
