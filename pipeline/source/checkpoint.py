"""Offsets as Spark keeps them in a checkpoint: `{"orders/0": 17, …}`, the next offset of each queue."""

from collections.abc import Mapping, Sequence

from pipeline.errors import PipelineError
from pipeline.proxy.topics import TopicQueue
from pipeline.source.ranges import Offsets


def to_checkpoint(offsets: Offsets) -> dict[str, int]:
    return {f"{each.topic}/{each.queue}": offset for each, offset in sorted(offsets.items())}


def from_checkpoint(stored: Mapping[str, int], topics: Sequence[str]) -> Offsets:
    """Read offsets of a checkpoint. Names of topics have no slash.

    Raises:
        PipelineError: the checkpoint belongs to a query on other topics.
    """
    found: Offsets = {}
    for name, offset in stored.items():
        topic, _, queue = name.rpartition("/")
        if topic not in topics:
            raise PipelineError(
                f"checkpoint: has offsets of topic {topic or name!r}, the query reads {', '.join(topics)}: "
                "use the checkpoint of this query or a new one"
            )
        found[TopicQueue(topic, int(queue))] = int(offset)
    return found
