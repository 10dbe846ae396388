"""A producer proxy and an engine that is not the one whose messages it knows: nothing is sent to it, /readyz says why."""

import pytest

from common.clock import SystemClock
from common.config.engine_records import EngineRecords
from common.config.memory_store import MemoryConfigStore
from common.readiness import Note
from engine.client.brokers import Brokers
from engine.client.dial import Hello
from tests.services.fake_broker import KEY, FakeBroker, wait_until


@pytest.fixture
def store():
    return MemoryConfigStore()


@pytest.fixture
def brokers(store):
    made = []

    def open_brokers():
        made.append(Brokers(KEY, role="producer_proxy", records=EngineRecords(store, SystemClock())))
        return made[-1]

    yield open_brokers
    for each in made:
        each.close()


@pytest.fixture
def fakes():
    found = {name: FakeBroker(name[-1] * 32) for name in ("g1", "g2")}
    for name, broker in found.items():
        broker.broker_group, broker.end_position = name, 5000
    yield found
    for broker in found.values():
        broker.stop()


def test_an_engine_at_anothers_address_is_refused_and_the_others_serve(fakes, brokers):
    cluster = brokers()
    cluster.follow([("g1", fakes["g1"].address), ("g2", fakes["g1"].address)])
    wait_until(lambda: isinstance(cluster.health(), Note))
    assert "broker group g2: at its address answers the engine of broker group g1" in cluster.health()
    assert [broker.append.connected for broker in cluster.listed] == [True, False]


@pytest.mark.parametrize("change", [{"log_id": "f" * 32}, {"end_position": 4999}], ids=["empty", "older copy"])
def test_an_empty_engine_or_an_older_copy_is_refused_until_an_operator_accepts_it(fakes, brokers, store, change):
    fake = fakes["g1"]
    first = brokers()
    first.use_one(fake.address)
    wait_until(lambda: first.connected and first.health() is True)
    first.close()
    for name, value in change.items():
        setattr(fake, name, value)
    fake.epoch = "2"
    again = brokers()
    again.use_one(fake.address)
    wait_until(lambda: "broker-group accept g1" in str(again.health()))
    assert not again.connected and not isinstance(again.health(), Note)
    found = Hello(fake.log_id, fake.broker_group, fake.epoch, fake.end_position, fake.end_position)
    EngineRecords(store, SystemClock()).accept("g1", found)
    wait_until(lambda: again.health() is True, 5)
