"""Pulls and reads of a broker group of two brokers while one master is replaced by the other."""

import gevent
import pytest
from gevent.event import AsyncResult

from common.breaker import State
from consumer_proxy.sources.base import Failure, SourceDown
from consumer_proxy.sources.engine import EngineSource
from consumer_proxy.sources.groups import GroupsSource
from engine.client import master_client
from engine.client.router import link_to
from engine.link import layout
from engine.link.acknowledgement import NO_ACKS
from engine.link.pull import EARLIEST, PullAnswer, PullQuestion, PullScope, decode_request
from tests.services.fake_broker import KEY, wait_until
from tests.services.fake_member import FakeMember


class Desk:
    """A source, over one group of two brokers of which the first one leads."""

    def __init__(self, kind: str) -> None:
        self.first, self.second = FakeMember("a", leads=True), FakeMember("b")
        place = (self.first.address, self.second.address)
        self.groups = GroupsSource(KEY, window=1 << 20) if kind == "groups" else None
        if self.groups is not None:
            self.groups.follow([("east", place)])
        self.source = self.groups or EngineSource(link_to(place, KEY, role="consumer_proxy"))
        wait_until(lambda: self.source.up)

    def pull(self, wait_ms: int = 5_000) -> AsyncResult:
        answer: AsyncResult = AsyncResult()
        scope = PullScope(b"readers", {"orders": 2})
        self.source.pull(PullQuestion(scope, 10, 1 << 20, wait_ms, 5_000, EARLIEST, NO_ACKS), answer.set)
        return answer

    @property
    def breaker(self):
        return self.groups.links[0].breaker if self.groups is not None else None

    def close(self) -> None:
        self.source.close()
        for each in (self.first, self.second):
            each.answers.set()
            each.stop()


@pytest.fixture(params=["groups", "one"])
def desk(request):
    made = Desk(request.param)
    yield made
    made.close()


def waits_at(broker: FakeMember) -> list[int]:
    """wait_ms of each pull that a broker was asked."""
    return [decode_request(payload).wait_ms for op, payload in broker.asked if op == layout.PULL]


def test_a_long_poll_goes_on_at_the_next_master_for_the_rest_of_its_time(desk):
    desk.first.answers.clear()
    answer = desk.pull()
    wait_until(lambda: waits_at(desk.first) == [5_000])
    gevent.sleep(0.1)
    desk.first.stop()
    gevent.sleep(0.1)
    assert not answer.ready() and desk.source.up
    desk.second.lead(2)
    assert isinstance(answer.get(timeout=3), PullAnswer)
    (left_ms,) = waits_at(desk.second)
    assert 3_000 < left_ms <= 4_800
    assert desk.breaker is None or (desk.breaker.opened, desk.breaker.state) == (0, State.CLOSED)


def test_a_pull_that_waits_for_no_message_is_not_late_while_no_broker_leads(desk):
    desk.first.stop()
    wait_until(lambda: not desk.first._sockets)
    gevent.sleep(0.01)
    answer = desk.pull(wait_ms=0)
    gevent.sleep(0.5)
    assert not answer.ready()
    desk.second.lead(2)
    assert isinstance(answer.get(timeout=3), PullAnswer)
    assert desk.breaker is None or (desk.breaker.opened, desk.breaker.state) == (0, State.CLOSED)


def test_without_a_master_for_long_pulls_fail_until_one_leads(desk, monkeypatch):
    monkeypatch.setattr(master_client, "SEEK_S", 0.1)
    desk.first.answers.clear()
    answer = desk.pull()
    wait_until(lambda: waits_at(desk.first))
    desk.first.stop()
    assert answer.get(timeout=3).code == layout.UNAVAILABLE and isinstance(answer.value, Failure)
    wait_until(lambda: not desk.source.up)
    with pytest.raises(SourceDown):
        desk.pull()
    desk.second.lead(2)
    wait_until(lambda: desk.source.up)
    assert isinstance(desk.pull().get(timeout=3), PullAnswer)


def test_a_master_that_hangs_is_left_when_another_one_leads(desk):
    desk.first.answers.clear()
    answer = desk.pull()
    wait_until(lambda: waits_at(desk.first))
    desk.second.lead(2)
    assert isinstance(answer.get(timeout=3), PullAnswer)
