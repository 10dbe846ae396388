"""Where a copy to Kafka goes on when its group has lost its position."""

from common.config.definitions.copies import CopyOutDefinition
from common.kafka.connection import KafkaConnection
from common.kafka.copy_mark import COPY_HEADER, CopyMark
from common.kafka.repair_mark import REPAIR_NAME
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import StartingPositions
from tests.services.memory_kafka import MemoryKafka, MemoryKafkaAdmin, MemoryKafkaDriver

PLACE = EngineTopic("log", 9)


class WithoutGroups(MemoryKafkaAdmin):
    def group_offsets(self, group):
        return {}


def mark(offset):
    return (COPY_HEADER, CopyMark(*PLACE, 0, offset, bytes(8)).encode())


def test_it_goes_on_behind_the_last_copied_message_and_a_repair_is_none():
    kafka = MemoryKafka(orders=1)
    kafka.add("orders", 0, b"a", headers=[mark(40)])
    kafka.add("orders", 0, b"b", headers=[mark(41)])
    # A repair of a message that the copy is to reach yet: it does not say that those before it are copied.
    kafka.add("orders", 0, b"c", headers=[mark(90), (REPAIR_NAME, b"-")])
    made = StartingPositions(
        MemoryKafkaDriver(kafka), KafkaConnection("main", ("k:1",)), WithoutGroups(kafka), CopyOutDefinition("orders")
    )
    assert made.of({0: PLACE}) == {0: 42}
