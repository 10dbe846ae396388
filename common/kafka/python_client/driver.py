"""The door of this driver: opens its clients."""

from common.kafka.base import GroupListener, GroupOptions, KafkaDriver, ProducerOptions, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.python_client.admin import PythonAdmin
from common.kafka.python_client.group_reader import PROTOCOLS, PythonGroupReader
from common.kafka.python_client.mended import use_native_checksums
from common.kafka.python_client.producer import PythonProducer
from common.kafka.python_client.reader import PythonReader


class PythonDriver(KafkaDriver):
    name = "kafka-python"
    group_protocols = PROTOCOLS

    def producer(self, connection: KafkaConnection, options: ProducerOptions) -> PythonProducer:
        return PythonProducer(connection, options)

    def reader(self, connection: KafkaConnection, options: ReaderOptions) -> PythonReader:
        return PythonReader(connection, options)

    def group_reader(
        self, connection: KafkaConnection, options: GroupOptions, listener: GroupListener
    ) -> PythonGroupReader:
        return PythonGroupReader(connection, options, listener)

    def admin(self, connection: KafkaConnection) -> PythonAdmin:
        return PythonAdmin(connection)


def driver() -> KafkaDriver:
    use_native_checksums()
    return PythonDriver()
