"""The placed topics of a configuration, found among all topics without parsing the others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from common.config import buckets as layout
from common.config.definitions import TopicDefinition
from common.config.errors import InvalidDefinition
from common.config.store import ConfigStore
from common.placement import PlacedTopics, Ranges, topic_hash

_MARKS = b'"broker_groups"', b'"placement"'
Parse = Callable[[bytes, str], TopicDefinition | None]
"""A topic's definition by its bucket's text and its name."""


class PlacedTopicIndex(Mapping[int, Ranges]):
    """The ranges by the hash of the topic's name, as of the last `follow`; see common.placement.PlacedTopics."""

    def __init__(self) -> None:
        self._payloads: Sequence[bytes] = ()
        self._by_bucket: list[dict[int, Ranges]] = []
        self._found: dict[int, Ranges] = {}

    def __getitem__(self, topic: int) -> Ranges:
        return self._found[topic]

    def get(self, topic: int, default: Any = None) -> Any:
        return self._found.get(topic, default)

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def follow(self, payloads: Sequence[bytes], parse: Parse) -> None:
        """Take the packed buckets of all topics. Only changed buckets are read. Raises StoreDamaged."""
        before = dict(zip(self._payloads, self._by_bucket, strict=True)) if len(payloads) == len(self._payloads) else {}
        self._by_bucket = [before[payload] if payload in before else _placed_in(payload, parse) for payload in payloads]
        self._payloads = payloads
        # Replaced in one step: readers in other threads see the old ranges or the new ones.
        self._found = {topic: ranges for found in self._by_bucket for topic, ranges in found.items()}


def _placed_in(payload: bytes, parse: Parse) -> dict[int, Ranges]:
    text = layout.unpack(payload, "bucket of topics") if payload else b""
    if not any(mark in text for mark in _MARKS):
        return {}
    lines = layout.lines_of(text)
    names = [name for name, line in lines.items() if any(mark in line for mark in _MARKS)]
    found = [each for name in names if (each := parse(text, name)) is not None]
    return {topic_hash(each.name.encode()): each.ranges for each in found if each.ranges}


def placed_definitions(store: ConfigStore) -> list[TopicDefinition]:
    """The topics that a store has now and that are placed, or have been, by name. Raises as `stored_placed_topics`."""
    found: list[TopicDefinition] = []

    def note(text: bytes, name: str) -> TopicDefinition | None:
        topic = _stored(text, name)
        if topic is not None and topic.ranges:
            found.append(topic)
        return topic

    PlacedTopicIndex().follow(_buckets(store), note)
    return sorted(found, key=lambda each: each.name)


def stored_placed_topics(store: ConfigStore) -> PlacedTopics:
    """The placed topics that a store has now. Reads all buckets of topics. Raises StoreUnavailable, StoreDamaged."""
    index = PlacedTopicIndex()
    index.follow(_buckets(store), _stored)
    return index


def _buckets(store: ConfigStore) -> list[bytes]:
    return store.buckets(TopicDefinition.kind, range(len(store.index(TopicDefinition.kind))))


def _stored(text: bytes, name: str) -> TopicDefinition | None:
    entry = layout.find(text, name)
    try:
        return None if entry is None else TopicDefinition.from_value(name, entry.value)
    except InvalidDefinition:
        return None
