"""The targets of Kafka clusters, over one link to the Kafka bridge that is opened for the first of them."""

import time

from common.address import Address
from engine.client.dial import Hello
from engine.client.rpc import RpcClient
from engine.link.proof import KAFKA_BRIDGE_ROLE
from producer_proxy.targets.kafka import KafkaTarget
from producer_proxy.targets.kafka_hot import KafkaHotTopics

FIRST_LINK_S = 1.0


class KafkaHomes:
    """Targets by the name of their cluster.

    Args:
        bridge: its address; None: this proxy has none, and messages of Kafka homes are UNAVAILABLE.
    """

    def __init__(self, bridge: Address | None = None, cluster_key: bytes = b"") -> None:
        self._bridge, self._key = bridge, cluster_key
        self._link: RpcClient | None = None
        self._waited_until = 0.0  # monotonic
        self._targets: dict[str, KafkaTarget] = {}
        self._hot: KafkaHotTopics | None = None

    def serve_hot(self, hot: KafkaHotTopics) -> None:
        """Make topics known to a hot path. To be called before the first target is made."""
        self._hot = hot

    def of(self, cluster: str, waits: bool = True) -> KafkaTarget:
        """The target of a cluster.

        Args:
            waits: block the greenlet until the link is up for the first time, for a second at most.
        """
        if self._bridge is not None:
            self._open_link(self._bridge, waits)
        found = self._targets.get(cluster)
        if found is None:
            found = self._targets[cluster] = KafkaTarget(cluster, self._link, self._hot)
        return found

    @property
    def all(self) -> list[KafkaTarget]:
        """The targets in use."""
        return list(self._targets.values())

    def close(self) -> None:
        """Close the targets and the link."""
        for each in self.all:
            each.close()
        if self._link is not None:
            self._link.close()

    def _open_link(self, bridge: Address, waits: bool) -> None:
        if self._link is None:
            self._link = RpcClient(bridge, self._key, role=KAFKA_BRIDGE_ROLE, admits=_refusal)
            self._waited_until = time.monotonic() + FIRST_LINK_S
        if waits and self._link.hello is None and (left_s := self._waited_until - time.monotonic()) > 0:
            self._link.wait_connected(left_s)


def _refusal(hello: Hello) -> str | None:
    return None if hello.broker_group == KAFKA_BRIDGE_ROLE else "it is no Kafka bridge: check --kafka-bridge"
