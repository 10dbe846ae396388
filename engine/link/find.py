"""FIND: a question to the Kafka bridge whether a topic has records with these ids since a time (docs/dual-write.md).

The request is JSON: {"cluster", "topic", "since_ms", "ids", "is_counted"}. The answer to code OK is JSON: {"found": {id:
partition}}, or {"counts": {id: number of records}} where that was asked for; it covers the records that were there when the
question came. Any other code comes with a sentence. TOO_LARGE: there are more records than can be read in time; UNAVAILABLE: the
cluster does not answer.
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
    is_counted: bool = False


def encode_find(cluster: str, topic: str, since_ms: int, ids: Sequence[str], is_counted: bool = False) -> bytes:
    """Encode a question; `is_counted`: how many records each id has, for which all of them are read."""
    question = {"cluster": cluster, "topic": topic, "since_ms": since_ms, "ids": list(ids), "is_counted": is_counted}
    return json.dumps(question).encode()


def decode_find(payload: bytes) -> FindRequest:
    """Raises PayloadError."""
    try:
        found = json.loads(payload)
        ids, is_counted = frozenset(found["ids"]), bool(found.get("is_counted"))
        request = FindRequest(found["cluster"], found["topic"], found["since_ms"], ids, is_counted)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise PayloadError(f"FIND: it is no question: {error}") from error
    texts = (request.cluster, request.topic, *request.ids)
    if not all(isinstance(each, str) for each in texts) or not isinstance(request.since_ms, int):
        raise PayloadError("FIND: names and ids are texts, since_ms is a whole number")
    if len(request.ids) > IDS_MAX:
        raise PayloadError(f"FIND: {len(request.ids)} ids: use at most {IDS_MAX}")
    return request


def encode_found(partitions: Mapping[str, int]) -> bytes:
    return json.dumps({"found": dict(partitions)}).encode()


def encode_counts(counts: Mapping[str, int]) -> bytes:
    return json.dumps({"counts": dict(counts)}).encode()


def decode_found(payload: bytes) -> dict[str, int]:
    """The partition by id. Raises PayloadError."""
    return _numbers(payload, "found")


def decode_counts(payload: bytes) -> dict[str, int]:
    """The number of records by id, of those that have any. Raises PayloadError."""
    return _numbers(payload, "counts")


def _numbers(payload: bytes, name: str) -> dict[str, int]:
    try:
        found = json.loads(payload)[name]
        return {str(id_): int(number) for id_, number in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise PayloadError(f"FIND: it is no answer: {error}") from error
