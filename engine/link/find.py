"""FIND: a question to the Kafka bridge whether a topic has records with these ids since a time (docs/dual-write.md).

The request is JSON: {"cluster", "topic", "since_ms", "ids"}. The answer to code OK is JSON: {"found": {id: partition}}; it
covers the records that were there when the question came. Any other code comes with a sentence.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.link.errors import PayloadError

IDS_MAX = 10_000


class FindRequest(NamedTuple):
    cluster: str
    topic: str
    since_ms: int
    ids: frozenset[str]


def encode_find(cluster: str, topic: str, since_ms: int, ids: Sequence[str]) -> bytes:
    return json.dumps({"cluster": cluster, "topic": topic, "since_ms": since_ms, "ids": list(ids)}).encode()


def decode_find(payload: bytes) -> FindRequest:
    """Raises PayloadError."""
    try:
        found = json.loads(payload)
        request = FindRequest(found["cluster"], found["topic"], found["since_ms"], frozenset(found["ids"]))
    except (ValueError, TypeError, KeyError) as error:
        raise PayloadError(f"FIND: it is no question: {error}") from error
    texts = (request.cluster, request.topic, *request.ids)
    if not all(isinstance(each, str) for each in texts) or not isinstance(request.since_ms, int):
        raise PayloadError("FIND: names and ids are texts, since_ms is a whole number")
    if len(request.ids) > IDS_MAX:
        raise PayloadError(f"FIND: {len(request.ids)} ids: use at most {IDS_MAX}")
    return request


def encode_found(partitions: Mapping[str, int]) -> bytes:
    return json.dumps({"found": dict(partitions)}).encode()


def decode_found(payload: bytes) -> dict[str, int]:
    """The partition by id. Raises PayloadError."""
    try:
        found = json.loads(payload)["found"]
        return {str(name): int(partition) for name, partition in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PayloadError(f"FIND: it is no answer: {error}") from error
