"""Both drivers as one: confluent-kafka, but partitions are read by kafka-python, whose batches are decoded natively."""

from common.kafka.base import (
    ClusterAdmin,
    GroupListener,
    GroupOptions,
    GroupReader,
    KafkaDriver,
    KafkaProducer,
    PartitionReader,
    ProducerOptions,
    ReaderOptions,
)
from common.kafka.connection import KafkaConnection
from common.kafka.group_admin import GroupAdmin


class PairedDriver(KafkaDriver):
    """Args: reading: opens readers of partitions; main: all else."""

    def __init__(self, main: KafkaDriver, reading: KafkaDriver) -> None:
        self._main, self._reading = main, reading
        self.name, self.group_protocols = main.name, main.group_protocols

    def producer(self, connection: KafkaConnection, options: ProducerOptions) -> KafkaProducer:
        return self._main.producer(connection, options)

    def reader(self, connection: KafkaConnection, options: ReaderOptions) -> PartitionReader:
        return self._reading.reader(connection, options)

    def group_reader(self, connection: KafkaConnection, options: GroupOptions, listener: GroupListener) -> GroupReader:
        return self._main.group_reader(connection, options, listener)

    def admin(self, connection: KafkaConnection) -> ClusterAdmin:
        return self._main.admin(connection)

    def group_admin(self, connection: KafkaConnection) -> GroupAdmin:
        return self._reading.group_admin(
            connection
        )  # by one request for many groups, where librdkafka needs a client each
