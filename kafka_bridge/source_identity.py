"""The identity by which an engine knows a partition of Kafka as a source: `CLUSTER-ID/TOPIC-ID`, the latter in hexadecimal."""

from contextlib import suppress
from uuid import UUID

from common.kafka.base import KafkaTopic
from engine.link.copy import ForeignSource


def source_of(cluster_id: str, topic: KafkaTopic, partition: int) -> ForeignSource:
    """A partition's name for ever: a topic that is made again has another id."""
    return ForeignSource(f"{cluster_id}/{topic.id.hex}".encode(), partition)


def topic_id_in(identity: bytes) -> UUID | None:
    """Kafka's topic id in an identity; None: it is not a source of Kafka."""
    with suppress(ValueError):
        return UUID(hex=identity.rpartition(b"/")[2].decode("ascii"))
    return None
