"""A proxy that starts: it waits for the links to all broker groups before it is ready, but not for long."""

import pytest

import engine.client.brokers as brokers_module
from engine.client.brokers import Brokers
from tests.services.fake_broker import KEY, FakeBroker, wait_until


@pytest.fixture
def cluster():
    """A proxy's brokers, of which one is away, and the one that is there."""
    here, away = FakeBroker("a" * 32), FakeBroker("b" * 32)
    address = away.address
    away.stop()
    made = Brokers(KEY, role="producer_proxy")
    made.follow([("g1", here.address), ("g2", address)])
    wait_until(lambda: made.listed[0].append.connected and made.listed[0].rpc.connected)
    yield made
    made.close()
    here.stop()


def test_it_is_not_ready_while_the_link_to_a_group_is_missing(cluster):
    assert cluster.health() == "broker_group=g2: not connected yet"


def test_a_group_that_stays_away_keeps_it_from_serving_the_others_for_a_few_seconds_only(cluster, monkeypatch):
    monkeypatch.setattr(brokers_module, "START_S", 0.0)
    assert cluster.health() is True
