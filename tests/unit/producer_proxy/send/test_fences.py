"""Topics whose home changes: sends are FENCED or buffered, and the fence ends by itself; a real bridge, Kafka in memory."""

from contextlib import closing

import pytest

import producer_proxy.proxy as proxy_module
from common.config.definitions import Fence, TopicDefinition
from common.config.errors import StoreUnavailable
from common.config.store import SENT
from common.config.view import ConfigView
from common.contract import Code, Message
from producer_proxy.admission.fences import Fences
from producer_proxy.send.results import FENCED_RETRY_AFTER_MS
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.send.desk import codes
from tests.unit.producer_proxy.targets.test_kafka_target import AT_HOME, KafkaDesk

FENCE = Fence("shop", "shop.1", 5_000)


@pytest.fixture(params=["hot", "slow"])
def desk(request, monkeypatch, tmp_path):
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    made = KafkaDesk(request.param == "hot", monkeypatch, tmp_path)
    yield made
    made.close()


def set_fence(desk, topic, fence, **fields):
    old = desk.config.get("topic", topic)
    value = {**old.value, **fields, "fence": fence and fence.to_value()}
    return desk.config.put("topic", topic, value, old.version)


@pytest.mark.parametrize("topic", ["k", "orders"])
def test_a_send_to_a_fenced_topic_is_fenced_with_a_time_for_the_retry_and_stored_nowhere(desk, topic):
    assert codes(desk.send(Message(topic=topic))) == [Code.OK]
    stored = len(desk.kafka.records("k")), len(desk.engine.stored)
    set_fence(desk, topic, FENCE)
    fenced, other = desk.send(Message(topic=topic, id="a"), Message(topic="k" if topic == "orders" else "orders"))
    assert (fenced.code, fenced.id, fenced.retry_after_ms) == (Code.FENCED, "a", FENCED_RETRY_AFTER_MS)
    assert "home changes" in fenced.error and other.code == Code.OK
    set_fence(desk, topic, None)
    assert codes(desk.send(Message(topic=topic, id="a"))) == [Code.OK]
    if topic == "k":
        assert len(desk.kafka.records("k")) == stored[0] + 1


def test_a_topic_with_a_buffer_is_buffered_behind_a_fence_and_drained_to_its_new_home(desk):
    set_fence(desk, "k.safe", FENCE)
    assert codes(desk.send(Message(topic="k.safe", id="a", body=b"kept"))) == [Code.BUFFERED]
    assert codes(desk.send(Message(topic="k.safe", id="b", body=b"kept"))) == [Code.BUFFERED]
    wait_until(lambda: desk.disk.room.entries == 2)
    assert desk.kafka.records("k.safe") == []
    set_fence(desk, "k.safe", None, home="engine")
    wait_until(lambda: desk.disk.room.entries == 0)
    assert desk.kafka.records("k.safe") == []
    assert "k.safe" in desk.engine.topics


def test_after_the_cut_the_next_send_goes_to_the_engine(desk):
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    set_fence(desk, "k", FENCE)
    assert codes(desk.send(Message(topic="k"))) == [Code.FENCED]
    set_fence(desk, "k", None, home="engine")
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    assert len(desk.kafka.records("k")) == 1 and "k" in desk.engine.topics


def test_sends_of_before_a_change_are_reported_only_once_the_bridge_has_answered_them(desk):
    numbers = desk.proxy._sent.numbers
    wait_until(lambda: numbers()[SENT] == desk.view.version["topic"])
    desk.kafka.is_holding = True
    late = desk.send(Message(topic="k"), timeout_ms=50)
    assert codes(late) == [Code.TIMEOUT]
    before = numbers()[SENT]
    set_fence(desk, "k", FENCE)
    assert codes(desk.send(Message(topic="k"))) == [Code.FENCED]
    assert numbers()[SENT] == before < desk.view.version["topic"]
    desk.kafka.release()
    wait_until(lambda: numbers()[SENT] == desk.view.version["topic"])


def test_sends_to_an_engine_that_hangs_are_reported_only_once_it_has_answered_them(desk):
    assert codes(desk.send(Message(topic="orders"))) == [Code.OK]
    numbers = desk.proxy._sent.numbers
    wait_until(lambda: numbers()[SENT] == desk.view.version["topic"])
    desk.engine.go.clear()
    assert codes(desk.send(Message(topic="orders"), timeout_ms=50)) == [Code.TIMEOUT]
    before = numbers()[SENT]
    set_fence(desk, "orders", FENCE)
    assert codes(desk.send(Message(topic="orders"))) == [Code.FENCED]
    assert numbers()[SENT] == before < desk.view.version["topic"]
    desk.engine.go.set()
    wait_until(lambda: numbers()[SENT] == desk.view.version["topic"])


class View:
    """A configuration with one topic."""

    def __init__(self, config) -> None:
        self.config = config

    def topic(self, name):
        found = self.config.get("topic", name)
        return None if found is None else TopicDefinition.from_value(name, found.value)


@pytest.fixture
def fenced(desk):
    """The desk's configuration with a fenced topic `moves`, and a clock: [now]."""
    desk.config.put("topic", "moves", TopicDefinition("moves", fence=FENCE, **AT_HOME).to_value(), 0)
    now = [100.0]
    return desk.config, now, Fences(View(desk.config), desk.config, lambda: now[0])


def stored_fence(config):
    return config.get("topic", "moves").value.get("fence")


def test_a_fence_is_removed_when_its_time_is_over_since_it_was_met(fenced):
    config, now, fences = fenced
    fences.tick()
    now[0] += 100.0
    assert fences.of("moves") == FENCE, "nothing was sent before: its time begins here"
    now[0] += 4.9
    fences.tick()
    assert stored_fence(config) is not None
    now[0] += 0.2
    fences.tick()
    wait_until(lambda: stored_fence(config) is None)
    assert fences.of("moves") is None


def test_a_later_fence_has_its_own_time(fenced):
    config, now, fences = fenced
    fences.of("moves")
    now[0] += 4.0
    later = Fence("shop", "shop.2", 5_000)
    found = config.get("topic", "moves")
    config.put("topic", "moves", {**found.value, "fence": later.to_value()}, found.version)
    assert fences.of("moves") == later
    now[0] += 4.0
    fences.tick()
    assert stored_fence(config) == later.to_value()


def test_without_contact_to_the_store_a_topic_stays_fenced_and_is_freed_later(fenced):
    config, now, fences = fenced
    fences.of("moves")
    peer = config.peer()
    fences._store = peer
    peer.set_available(False)
    now[0] += 6.0
    with pytest.raises(StoreUnavailable):
        peer.get("topic", "moves")
    fences.tick()
    assert fences.of("moves") == FENCE
    peer.set_available(True)
    now[0] += 6.0
    fences.tick()
    wait_until(lambda: stored_fence(config) is None)


def test_a_proxy_that_may_only_read_the_topic_ends_its_fence_and_the_next_one_has_its_own_time(fenced):
    config, now, fences = fenced
    reader = config.peer(is_reader=True)
    with closing(ConfigView(reader)) as view:
        fences._view, fences._store = view, reader
        assert fences.of("moves") == FENCE
        now[0] += 5.1
        fences.tick()
        wait_until(lambda: fences.of("moves") is None)
        assert stored_fence(config) == FENCE.to_value() and config.get("ended_fence", "moves").value == {
            "fence": "shop.1"
        }
        later, found = Fence("shop", "shop.2", 5_000), config.get("topic", "moves")
        config.put("topic", "moves", {**found.value, "fence": later.to_value()}, found.version)
        assert fences.of("moves") == later
