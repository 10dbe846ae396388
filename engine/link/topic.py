"""TOPIC: asks for the ids of topics, which are created where they are missing. JSON in both directions."""

import json
from collections.abc import Iterable
from typing import NamedTuple


class TopicPlace(NamedTuple):
    """A topic at one engine. `id` belongs to the engine's log; `queues` may be more than asked for."""

    id: int
    queues: int


def encode_topics(topics: Iterable[tuple[str, int]]) -> bytes:
    """Encode a request for topics of these names with at least the given numbers of queues."""
    return json.dumps({"topics": [{"name": name, "queues": queues} for name, queues in topics]}).encode()


def decode_topics(payload: bytes) -> list[TopicPlace]:
    """The topics of an answer, in the order of the request."""
    return [TopicPlace(topic["id"], topic["queues"]) for topic in json.loads(payload)["topics"]]
