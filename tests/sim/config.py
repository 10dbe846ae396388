"""The configuration that a simulated engine follows: definitions in memory, and what can go wrong with them."""

import json
from typing import Any

from common.config.buckets import entry_line, pack
from common.config.definitions import FamilyDefinition, GroupDefinition, TopicDefinition
from common.config.errors import InvalidDefinition
from common.config.kind_view import KindView
from common.config.snapshot import Buckets
from engine.server.policy.group_policies import ConfiguredPolicies
from engine.server.policy.topic_retention import ConfiguredRetention


class SimulatedView:
    """Definitions of groups and topics, parsed as `common.config.ConfigView` parses them."""

    age_s = 0.0

    def __init__(self) -> None:
        self.generation = 1
        self.values: dict[tuple[str, str], dict[str, Any]] = {}
        self._last_known: dict[tuple[str, str], Any] = {}

    def forget(self) -> None:
        """Forget the last readable forms."""
        self._last_known.clear()

    def group(self, name: str) -> GroupDefinition | None:
        """The group's definition; None: it has none, or none that this version can read."""
        return self._find("group", name, GroupDefinition)

    def stored(self, kind: str) -> KindView:
        """The kind's entries as a store keeps them, in one bucket."""
        lines = {name: entry_line(name, 1, value) for (own, name), value in self.values.items() if own == kind}
        return KindView(Buckets((1,), (pack(lines, 1, kind),)))

    def is_unreadable(self, kind: str, name: str) -> bool:
        """Whether there is a definition that this version cannot read; its last known form is in force."""
        value = self.values.get((kind, name))
        try:
            if value is not None:
                (GroupDefinition if kind == "group" else TopicDefinition).from_value(
                    name, json.loads(json.dumps(value))
                )
        except InvalidDefinition:
            return True
        return False

    def topic(self, name: str) -> TopicDefinition | None:
        """The topic's definition, its own or that of its family."""
        found = self._find("topic", name, TopicDefinition)
        if found is None and ("topic", name) not in self.values:
            family = self._find("family", name.rstrip("0123456789") + "*", FamilyDefinition)
            return None if family is None else family.topic(name)
        return found

    def was_deleted(self, kind: str, name: str) -> bool:
        """Nobody deletes a definition on purpose; a lost one is lost."""
        return False

    def topic_was_deleted(self, name: str) -> bool:
        """As `was_deleted`."""
        return False

    def broker_groups(self) -> list:
        """One engine serves everything."""
        return []

    def _find(self, kind: str, name: str, definition: type) -> Any:
        value = self.values.get((kind, name))
        if value is None:
            return None
        try:
            found = definition.from_value(name, json.loads(json.dumps(value)))  # type: ignore[attr-defined]
            self._last_known[kind, name] = found
            return found
        except InvalidDefinition:
            return self._last_known.get((kind, name))


class SimulatedConfig:
    """A configuration store and the engine's follower of it.

    Attributes:
        view: None until the engine has read the configuration.
    """

    def __init__(self) -> None:
        self.stored = SimulatedView()
        self.view: SimulatedView | None = self.stored
        self.policies = ConfiguredPolicies(self, is_configured=True)  # type: ignore[arg-type]
        self.retention = ConfiguredRetention(self, is_configured=True)  # type: ignore[arg-type]

    def put(self, kind: str, name: str, **value: Any) -> None:
        """Store a definition."""
        self.stored.values[kind, name] = value
        self.stored.generation += 1

    def restore(self, values: dict[tuple[str, str], dict[str, Any]]) -> None:
        """Replace all definitions."""
        self.stored.values = dict(values)
        self.stored.generation += 1

    def begin(self) -> None:
        """A process starts, which knows no earlier form of a definition."""
        self.stored.forget()

    def go_away(self) -> None:
        """The engine starts without having read it."""
        self.view = None

    def come(self) -> None:
        """The engine has read it."""
        self.view = self.stored
