"""The door of this driver: opens its clients."""

from common.kafka.base import GroupListener, GroupOptions, KafkaDriver, ProducerOptions, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.librdkafka.admin import LibrdkafkaAdmin
from common.kafka.librdkafka.group_reader import PROTOCOLS, LibrdkafkaGroupReader
from common.kafka.librdkafka.native import LibraryProducer
from common.kafka.librdkafka.producer import DirectProducer, LibrdkafkaProducer
from common.kafka.librdkafka.reader import LibrdkafkaReader


class LibrdkafkaDriver(KafkaDriver):
    name = "confluent-kafka"
    group_protocols = PROTOCOLS

    def producer(self, connection: KafkaConnection, options: ProducerOptions) -> LibrdkafkaProducer:
        is_direct = LibraryProducer is not None and not options.transactional_id
        return DirectProducer(connection, options) if is_direct else LibrdkafkaProducer(connection, options)

    def reader(self, connection: KafkaConnection, options: ReaderOptions) -> LibrdkafkaReader:
        return LibrdkafkaReader(connection, options)

    def group_reader(
        self, connection: KafkaConnection, options: GroupOptions, listener: GroupListener
    ) -> LibrdkafkaGroupReader:
        return LibrdkafkaGroupReader(connection, options, listener)

    def admin(self, connection: KafkaConnection) -> LibrdkafkaAdmin:
        return LibrdkafkaAdmin(connection)


def driver() -> KafkaDriver:
    return LibrdkafkaDriver()
