"""Proxies whose topics are written to two sides: two of them in memory; with a tap, a broker in memory and a real bridge
before a Kafka in memory."""

import pytest

from common.clock import SystemClock
from common.config.definitions import TopicDefinition
from common.contract import Message
from producer_proxy.journal.divergence import divergence
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.journaling import Journaling
from producer_proxy.journal.native import HAS_TAP
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.journal.side import DualDesk
from tests.unit.producer_proxy.targets.test_kafka_target import PARTITIONS, KafkaDesk

TAPPED_TOPICS = ("out", "orders.two")


@pytest.fixture
def tap_desk(monkeypatch, tmp_path):
    """Each topic has its tap already, and nothing waits."""
    if not HAS_TAP:
        pytest.skip("the tap is native code, which is not built in this run")
    now_ms = SystemClock().now_ms
    journaling = Journaling(RepairJournal(tmp_path / "journal", now_ms), now_ms)
    made = KafkaDesk(True, monkeypatch, tmp_path, journaling=journaling)
    for name in TAPPED_TOPICS:
        made.kafka.create(name, PARTITIONS)
        fields = {"secondary": "kafka:main", "queues": PARTITIONS, "id_window_ms": 0}
        made.config.put("topic", name, TopicDefinition(name, **fields).to_value(), 0)
    wait_until(lambda: made.view.topic(TAPPED_TOPICS[-1]) is not None)
    for name in TAPPED_TOPICS:
        made.send(Message(topic=name))
    made.journal = tmp_path / "journal"
    wait_until(lambda: divergence(made.journal, underway_ms=0).is_empty)
    yield made
    made.close()


@pytest.fixture
def make(tmp_path):
    made = []

    def desk(**options):
        made.append(DualDesk(tmp_path / "journal", **options))
        return made[-1]

    yield desk
    for each in made:
        each.secondary.release()
        each.stop()


@pytest.fixture
def desk(make):
    return make()
