"""A group's filters: which one holds for a topic, and what the log keeps of them.

The filters come from the configuration. The log keeps the last ones seen, so that an engine that starts before it has read its
configuration does not hand out what they would pass over. Key: b"f" ‖ group ‖ 0x00. Value: JSON, filter by topic, "" for all others.
"""

import json
from collections.abc import Mapping
from functools import lru_cache

from common.dead_letters import is_dead_letter_topic
from common.filter.expression import read_filter
from common.filter.native import Filter

NONE: Mapping[str, str] = {}


def key(group: str) -> bytes:
    """Under which the log keeps a group's filters."""
    return b"f" + group.encode() + b"\0"


def encode(filters: Mapping[str, str]) -> bytes:
    """What the log keeps; nothing when there are none."""
    return json.dumps(dict(filters)).encode() if filters else b""


def kept(store, group: str) -> Mapping[str, str]:
    """What the log has kept."""
    return next((json.loads(value) for raw, value in store.progress(key(group)) if raw == key(group)), NONE)


def filter_for(filters: Mapping[str, str], topic: str) -> Filter | None:
    """The filter of a topic; None when everything is taken, as dead letters are: they have passed it already."""
    text = filters.get(topic) or filters.get("")
    return None if not text or is_dead_letter_topic(topic) else compiled(text)


@lru_cache(16_384)
def compiled(text: str) -> Filter | None:
    """The filter that a definition was accepted with."""
    formula = read_filter(text).formula
    return None if formula is True else Filter(formula)
