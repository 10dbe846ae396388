"""A copier to Kafka in a process of its own, so that a test can kill it: DRIVER BOOTSTRAP PORT TOPIC QUEUES KAFKA_TOPIC."""

import sys
import time
from contextlib import closing

from common.config.definitions import KafkaClusterDefinition
from common.config.definitions.copies import CopyOutDefinition
from common.kafka.drivers import open_driver
from engine.client.admin import AdminClient
from kafka_bridge.connecting import FollowedConnection
from kafka_bridge.copy_out.copier import OutCopier, TurnClients
from kafka_bridge.copy_out.engine_reads import EngineReads, QueueLink
from tests.e2e.test_engine_process import ADMIN_SECRET

PAUSE_S = 0.2
"""Between two turns: the first one ends with a fault, or after a quiet minute."""


def main(driver: str, bootstrap: str, port: str, topic: str, queues: str, kafka_topic: str) -> None:
    def open_engine() -> EngineReads:
        link = AdminClient(("127.0.0.1", int(port)), ADMIN_SECRET)
        return EngineReads(topic, [QueueLink(link, link.hello.log_id, range(int(queues)))])

    cluster = KafkaClusterDefinition("main", bootstrap=bootstrap)
    definition = CopyOutDefinition(topic, cluster="main", kafka_topic=kafka_topic)
    copier = OutCopier(definition, open_engine)
    with closing(TurnClients(open_driver(driver), lambda: FollowedConnection(cluster))) as clients:
        while True:
            copier.take_turn(clients)
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
