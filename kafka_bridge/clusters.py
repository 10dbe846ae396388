"""The Kafka clusters of one bridge: a client each, from the first question about it on."""

import threading

from common.config.view import ConfigView
from common.readiness import Note
from kafka_bridge.cluster_client import ClusterClient, Drivers
from kafka_bridge.connecting import Connections, connection_of, driver_of
from kafka_bridge.finding import Finder


class Clusters:
    """Clients by name. Thread-safe.

    Args:
        view: the configuration; clients follow its changes.
        connections: reads the files of a cluster.
    Attributes:
        finder: searches records by their ids.
    """

    def __init__(
        self, view: ConfigView, drivers: Drivers = driver_of, connections: Connections = connection_of
    ) -> None:
        self._view, self._drivers, self._connections = view, drivers, connections
        self.finder = Finder(view, drivers, connections)
        self._changing = threading.Lock()
        self._clients: list[ClusterClient] = []
        view.on_change(self._follow)

    def named(self, name: str) -> ClusterClient | None:
        """The client of a cluster; None: the configuration does not have it."""
        with self._changing:
            found = next((each for each in self._clients if each.name == name), None)
            if found is None and (cluster := self._view.kafka_cluster(name)) is not None:
                found = ClusterClient(cluster, self._drivers, self._connections)
                self._clients.append(found)
            return found

    @property
    def all(self) -> list[ClusterClient]:
        return list(self._clients)

    def health(self) -> dict[str, bool | str]:
        """Clusters for /readyz. One that is away is a note: the bridge serves the others."""
        return {f"kafka {each.name}": Note(each.fault) if each.fault else True for each in self.all}

    def close(self, timeout_s: float) -> None:
        """Close all clients at once, each within this time."""
        self.finder.close()
        closers = [threading.Thread(target=each.close, args=(timeout_s,), daemon=True) for each in self.all]
        for each in closers:
            each.start()
        for each in closers:
            each.join(timeout_s + 1)

    def _follow(self) -> None:
        for each in self.all:
            each.use(self._view.kafka_cluster(each.name))
