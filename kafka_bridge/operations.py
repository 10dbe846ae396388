"""PRODUCE and FIND: requests of links to the clients of clusters, and their answers back."""

from common.contract import Code
from engine.link.codes import OK
from engine.link.find import decode_find
from engine.link.operations import FIND, PRODUCE
from kafka_bridge.clusters import Clusters
from kafka_bridge.link import BridgeLink
from kafka_bridge.native import OutgoingBatch

STOPPING = "the Kafka bridge is stopping; nothing was stored"


class Operations:
    """The operations of one bridge. Called in threads of links; none of them blocks.

    Attributes:
        is_stopping: further requests are refused.
    """

    def __init__(self, clusters: Clusters) -> None:
        self._clusters, self.is_stopping = clusters, False

    def find(self, link: BridgeLink, request_id: int, payload: bytes) -> None:
        """Serve FIND. Raises PayloadError."""
        self._clusters.finder.find(decode_find(payload), lambda code, found: link.answer(FIND, request_id, code, found))

    def produce(self, link: BridgeLink, request_id: int, payload: bytes) -> None:
        """Serve PRODUCE. Raises PayloadError."""
        batch = OutgoingBatch(payload)

        def answer(results: bytes) -> None:
            link.answer(PRODUCE, request_id, OK, results)

        client = None if self.is_stopping else self._clusters.named(batch.cluster)
        if client is None:
            unknown = f'kafka "{batch.cluster}": the configuration does not have this cluster; nothing was stored'
            sentence = STOPPING if self.is_stopping else unknown
            answer(batch.refused(Code.UNAVAILABLE, sentence))
        else:
            client.produce(batch, answer)
