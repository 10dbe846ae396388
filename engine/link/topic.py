"""TOPIC: asks for the ids of topics, which are created where they are missing. JSON in both directions."""

import json
from collections.abc import Iterable


def encode_topics(topics: Iterable[tuple[str, int]]) -> bytes:
    """Encode a request for topics of these names with at least the given numbers of queues."""
    return json.dumps({"topics": [{"name": name, "queues": queues} for name, queues in topics]}).encode()
