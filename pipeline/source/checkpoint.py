"""Offsets as Spark keeps them in a checkpoint: `{"orders/0": 17, …}`, the next offset of each queue."""

import re
from collections.abc import Mapping

from pipeline.errors import PipelineError
from pipeline.options import ReadOptions
from pipeline.proxy.topics import TopicQueue
from pipeline.source.ranges import Offsets


def to_checkpoint(offsets: Offsets) -> dict[str, int]:
    return {f"{each.topic}/{each.queue}": offset for each, offset in sorted(offsets.items())}


def from_checkpoint(stored: Mapping[str, int], options: ReadOptions) -> Offsets:
    """Read offsets of a checkpoint. Names of topics have no slash.

    Raises:
        PipelineError: the checkpoint belongs to a query on other topics.
    """
    found: Offsets = {}
    expression = re.compile(options.topic_pattern) if options.topic_pattern else None
    reads = f"topics that match {options.topic_pattern}" if expression else ", ".join(options.topics)
    for name, offset in stored.items():
        topic, _, queue = name.rpartition("/")
        if not (expression.fullmatch(topic) if expression else topic in options.topics):
            raise PipelineError(
                f"checkpoint: has offsets of topic {topic or name!r}, the query reads {reads}: "
                "use the checkpoint of this query or a new one"
            )
        found[TopicQueue(topic, int(queue))] = int(offset)
    return found
