"""Families: one definition for all topics with a prefix, so that a million topics do not need a million entries."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from common.config.definitions import FamilyDefinition, TopicDefinition
from common.config.errors import InvalidDefinition
from common.dead_letters import is_dead_letter_topic
from common.limited_log import LimitedLog
from common.shared_reads import is_hidden_topic

limited = LimitedLog(logging.getLogger("penstock.config"))


class Families:
    """All families at one time. Designed for hundreds, because each change of one parses all of them again.

    Args:
        entries: (name, value) of each, the name with its `*`. The topics of an invalid family have no definition: a
            shorter prefix was not meant for them, and could promise less.
        last_known: readable values of families whose present value cannot be read.
    """

    def __init__(
        self,
        entries: Iterable[tuple[str, Mapping[str, Any]]] = (),
        last_known: Mapping[str, Mapping[str, Any]] | None = None,
    ):
        kept = last_known or {}
        self._by_prefix = {name.removesuffix("*"): _parse(name, value, kept.get(name)) for name, value in entries}
        self._lengths = sorted({len(prefix) for prefix in self._by_prefix}, reverse=True)

    def matching(self, name: str) -> FamilyDefinition | None:
        """The family with the longest prefix of `name`."""
        for length in self._lengths:
            prefix = name[:length]
            if prefix in self._by_prefix:
                return self._by_prefix[prefix]
        return None

    def topic(self, name: str) -> TopicDefinition | None:
        """The definition of a topic without an entry of its own."""
        family = None if is_dead_letter_topic(name) or is_hidden_topic(name) else self.matching(name)
        return family.topic(name) if family else None


def _parse(name: str, value: Mapping[str, Any], last_known: Mapping[str, Any] | None = None) -> FamilyDefinition | None:
    try:
        return FamilyDefinition.from_value(name, value)
    except InvalidDefinition as fault:
        if last_known is not None:
            return _parse(name, last_known)
        limited.warning("family=%s: invalid, its topics are treated as unknown: %s", name, fault, about=name)
        return None
