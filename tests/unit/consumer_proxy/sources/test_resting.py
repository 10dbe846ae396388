"""The looks at breakers of broker groups rest while no answer is due."""

import time

import pytest

from common.breaker import State
from consumer_proxy.sources import groups
from consumer_proxy.sources.groups import GroupsSource
from engine.client.brokers import PROBE
from engine.link.codes import OK
from engine.link.operations import TOPIC
from tests.services.fake_broker import KEY, FakeBroker, wait_until

ISOLATED_S_MAX = 0.2  # of a busy machine


class Desk:
    def __init__(self):
        self.brokers = {name: FakeBroker(name[0] * 32) for name in ("east", "north")}
        self.source = GroupsSource(KEY)
        self.source.follow([(name, broker.address) for name, broker in self.brokers.items()])
        self.east, self.north = self.source.links
        self.answers = []

    @property
    def rests(self) -> bool:
        return self.source._looking.rests

    def ask(self) -> int:
        part = object()

        def answered(code, payload):
            self.north.answered(part)
            self.answers.append(code)

        return self.north.send(TOPIC, PROBE, part, answered, waits=False)

    def close(self):
        self.source.close()
        for broker in self.brokers.values():
            broker.resolves.set()
            broker.stop()


@pytest.fixture
def desk(monkeypatch):
    monkeypatch.setattr(groups, "REST_S", 0.03)
    made = Desk()
    yield made
    made.close()


def test_they_rest_once_all_groups_are_connected_and_a_due_answer_wakes_them(desk):
    assert not desk.rests
    for _ in range(3):
        wait_until(lambda: desk.rests)
        assert {link.breaker.state for link in desk.source.links} == {State.CLOSED}
        desk.ask()
        assert not desk.rests
    wait_until(lambda: desk.answers == [OK] * 3)


def test_a_group_that_hangs_after_a_rest_is_isolated_as_without_one(desk):
    wait_until(lambda: desk.rests)
    desk.source._stalls.resume(time.monotonic() - 60)  # the last look was a minute ago
    desk.brokers["north"].resolves.clear()
    desk.ask()
    began = time.monotonic()
    wait_until(lambda: desk.north.isolated)
    assert time.monotonic() - began < ISOLATED_S_MAX
    wait_until(lambda: desk.north.refusing)  # after a second, in which idle looks would have gone to rest
    assert not desk.rests
    desk.brokers["north"].resolves.set()
    wait_until(lambda: desk.rests)
    assert desk.north.breaker.state is State.CLOSED


def test_a_lost_link_wakes_them_until_it_is_back(desk):
    wait_until(lambda: desk.rests)
    desk.brokers["north"].break_links()
    wait_until(lambda: desk.north.breaker.opened == 1)
    assert not desk.rests
    wait_until(lambda: desk.rests)
    assert desk.north.breaker.state is State.CLOSED


def test_a_group_that_is_added_wakes_them(desk):
    wait_until(lambda: desk.rests)
    desk.source.follow([("east", desk.brokers["east"].address)])
    assert not desk.rests
    wait_until(lambda: desk.rests)
