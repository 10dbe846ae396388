"""Filters of a group: the one for a topic, and their stored form.

The filters come from the configuration. The log keeps the last ones, so that an engine that starts before it has read
its configuration does not dispatch what they pass over. Key: b"f" ‖ group ‖ 0x00. Value: JSON, filter by topic, "" for
all others.
"""

import json
from collections.abc import Mapping
from functools import lru_cache

from common.dead_letters import is_dead_letter_topic
from common.filter.expression import read_filter
from common.filter.native import Filter
from engine.log.port import DeliveryLog

NONE: Mapping[str, str] = {}


def key(group: str) -> bytes:
    """Return the key of a group's stored filters."""
    return b"f" + group.encode() + b"\0"


def encode(filters: Mapping[str, str]) -> bytes:
    """Return the stored form; empty without filters."""
    return json.dumps(dict(filters)).encode() if filters else b""


def stored(store: DeliveryLog, group: str) -> Mapping[str, str]:
    """Return the stored filters of a group."""
    return next((json.loads(value) for raw, value in store.progress(key(group)) if raw == key(group)), NONE)


def filter_for(filters: Mapping[str, str], topic: str) -> Filter | None:
    """Return the filter for a topic; None: all messages pass, as for dead letters, which have passed it already."""
    text = filters.get(topic) or filters.get("")
    return None if not text or is_dead_letter_topic(topic) else compiled(text)


@lru_cache(16_384)
def compiled(text: str) -> Filter | None:
    """Compile a filter that the configuration has accepted."""
    formula = read_filter(text).formula
    return None if formula is True else Filter(formula)
