"""What the copier of a group on Kafka tells while it waits."""

import threading
from types import SimpleNamespace

from common.clock import FakeClock
from common.config.definitions import KafkaClusterDefinition
from common.kafka.errors import ClusterUnreachable
from kafka_bridge.copy_in.copier import CopyTools
from kafka_bridge.copy_in.plan import CopyPlan, KafkaMembership
from kafka_bridge.shared_read.copier import SharedCopiers
from tests.waiting import until

PLAN = CopyPlan(
    "_kafka.g.orders", "_kafka.g.orders", 1, KafkaClusterDefinition(name="main", bootstrap="127.0.0.1:9"), "orders",
    membership=KafkaMembership("g", "orders", False, False),
)  # fmt: skip


def test_a_member_that_waits_without_an_end_is_told_until_it_knows_why():
    asked, goes_on, clock = threading.Event(), threading.Event(), FakeClock()

    def admin(connection):
        asked.set()
        assert goes_on.wait(30)
        raise ClusterUnreachable("no broker answers")

    tools = CopyTools(
        None,
        clock,
        lambda: {"main": ("a",)},
        lambda name, addresses: SimpleNamespace(close=lambda: None),
        lambda cluster: SimpleNamespace(admin=admin),
    )
    topic = SharedCopiers().copy(PLAN, tools)
    assert asked.wait(30) and topic.standstills == []
    clock.advance(31_000)
    (silent,) = topic.standstills
    assert silent.sentence == "nothing has moved for 31 s: it waits for an answer of Kafka or of the engine"
    goes_on.set()
    until(lambda: [each.sentence for each in topic.standstills] == ["no broker answers"], "the cause")
    topic.stop()
    assert topic.join(30)
