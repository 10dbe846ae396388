"""A Kafka bridge in threads of this process, over a Kafka cluster in memory, that can be killed and started again."""

from pathlib import Path

from common.address import Address
from common.config import ConfigView
from common.config.store import ConfigStore
from kafka_bridge.clusters import Clusters
from kafka_bridge.server import BridgeServer
from tests.services.memory_kafka import MemoryKafka, MemoryKafkaDriver


class ThreadedBridge:
    """Serves on a socket file; the configuration names the clusters, which all are `kafka`."""

    def __init__(self, directory: Path, key: bytes, store: ConfigStore, kafka: MemoryKafka) -> None:
        self.address = Address(str(directory / "bridge.sock"))
        self._key, self._store, self.kafka = key, store, kafka
        self.server: BridgeServer | None = None

    def start(self) -> "ThreadedBridge":
        self.view = ConfigView(self._store)
        self.clusters = Clusters(self.view, lambda cluster: MemoryKafkaDriver(self.kafka))
        self.server = BridgeServer(self.address, self._key, self.clusters)
        return self

    def kill(self) -> None:
        """Break all links without an answer, as when the process is killed."""
        if self.server is None:
            return
        self.server.stop_accepting()
        for link in list(self.server._links):
            link.close("killed")
        self.clusters.close(0.1)
        self.view.close()
        self.server = None
