"""The placed topics of a configuration, found among all topics without parsing the others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from common.config import buckets as layout
from common.config.definitions import TopicDefinition
from common.config.errors import InvalidDefinition
from common.config.store import ConfigStore
from common.placement import Ranges, topic_hash

_MARKS = b'"broker_groups"', b'"placement"'
Parse = Callable[[bytes, str], TopicDefinition | None]
"""A topic's definition by its bucket's text and its name."""


class PlacedTopicIndex(Mapping[int, Ranges]):
    """The ranges by the hash of the topic's name, as of the last `follow`; a common.placement.PlacedTopics."""

    def __init__(self) -> None:
        self._payloads: Sequence[bytes] = ()
        self._by_bucket: list[list[TopicDefinition]] = []
        self._found: dict[int, Ranges] = {}

    def __getitem__(self, topic: int) -> Ranges:
        return self._found[topic]

    def get(self, topic: int, default: Any = None) -> Any:
        return self._found.get(topic, default)

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def topics(self) -> list[TopicDefinition]:
        """The placed topics by name, also those that are in all broker groups again."""
        return sorted((topic for found in self._by_bucket for topic in found), key=lambda each: each.name)

    def follow(self, payloads: Sequence[bytes], parse: Parse) -> None:
        """Take the packed buckets of all topics. Only changed buckets are read. Raises StoreDamaged."""
        before = dict(zip(self._payloads, self._by_bucket, strict=True))
        self._by_bucket = [before[payload] if payload in before else _placed_in(payload, parse) for payload in payloads]
        self._payloads = payloads
        # Replaced in one step: readers in other threads see the old ranges or the new ones.
        self._found = {topic_hash(each.name.encode()): each.ranges for found in self._by_bucket for each in found}


def _placed_in(payload: bytes, parse: Parse) -> list[TopicDefinition]:
    text = layout.unpack(payload, "bucket of topics") if payload else b""
    if not any(mark in text for mark in _MARKS):
        return []
    lines = layout.lines_of(text)
    names = [name for name, line in lines.items() if any(mark in line for mark in _MARKS)]
    return [each for name in names if (each := parse(text, name)) is not None and each.ranges]


def stored_placed_topics(store: ConfigStore) -> PlacedTopicIndex:
    """The placed topics that a store has now. Reads all buckets of topics. Raises StoreUnavailable, StoreDamaged."""
    index = PlacedTopicIndex()
    index.follow(store.buckets(TopicDefinition.kind, range(len(store.index(TopicDefinition.kind)))), _stored)
    return index


def _stored(text: bytes, name: str) -> TopicDefinition | None:
    entry = layout.find(text, name)
    try:
        return None if entry is None else TopicDefinition.from_value(name, entry.value)
    except InvalidDefinition:
        return None
