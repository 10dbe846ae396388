"""Who changes what: the context of a verb, and the read-modify-write that all verbs are made of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from common.admin import audit
from common.clock import Clock, SystemClock
from common.config.definitions import ApplicationDefinition, FamilyDefinition, GroupDefinition, TopicDefinition
from common.config.errors import EntryNotFound, VersionConflict
from common.config.gate_settings import GateSettings
from common.config.store import Change, ConfigStore

D = TypeVar("D", TopicDefinition, FamilyDefinition, GroupDefinition, ApplicationDefinition, GateSettings)
KIND = {
    TopicDefinition: "topic",
    FamilyDefinition: "family",
    GroupDefinition: "group",
    ApplicationDefinition: "application",
    GateSettings: "setting",
}
RACES_MAX = 5


@dataclass(frozen=True)
class Administrator:
    """
    Attributes:
        who: stands in the audit journal, such as `cli:alice@host`.
    """

    store: ConfigStore
    who: str
    clock: Clock = field(default_factory=SystemClock)


def get(admin: Administrator, definition: type[D], name: str) -> tuple[D, int]:
    """The definition and its version. Raises EntryNotFound."""
    kind = KIND[definition]
    found = admin.store.get(kind, name)
    if found is None:
        raise EntryNotFound(f"{kind}={name}: there is none")
    return definition.from_value(name, found.value), found.version


def page(admin: Administrator, definition: type[D], prefix: str, after: str, limit: int) -> list[tuple[D, int]]:
    entries = admin.store.entries(KIND[definition], prefix, after, limit)
    return [(definition.from_value(name, found.value), found.version) for name, found in entries]


def create(admin: Administrator, definitions: list[D]) -> None:
    """Write new definitions of one kind, all or (within one transaction) none. Raises VersionConflict where one exists."""
    kind = KIND[type(definitions[0])]
    versions = admin.store.put_many(kind, [Change(each.name, each.to_value(), 0) for each in definitions])
    audit.record(
        admin.store,
        admin.clock,
        admin.who,
        "create",
        kind,
        [each.name for each in definitions],
        None,
        _shown(definitions[0]),
        versions[0],
    )


def change(admin: Administrator, definition: type[D], name: str, new: Callable[[D], D]) -> D:
    """Replace a definition by `new(old)`; repeated when somebody else writes in between, so `new` only computes.

    Raises:
        EntryNotFound, InvalidDefinition: from the new definition; and whatever `new` raises.
    """
    kind = KIND[definition]
    for race in range(RACES_MAX):
        old, version = get(admin, definition, name)
        made = definition.from_value(name, new(old).to_value())
        if made == old:
            return old
        try:
            now = admin.store.put(kind, name, made.to_value(), version)
        except VersionConflict:
            if race == RACES_MAX - 1:
                raise
            continue
        audit.record(admin.store, admin.clock, admin.who, "change", kind, [name], _shown(old), _shown(made), now)
        return made
    raise AssertionError("the loop returns or raises")


def delete(admin: Administrator, definition: type[D], name: str) -> None:
    kind = KIND[definition]
    old, version = get(admin, definition, name)
    admin.store.delete(kind, name, version)
    audit.record(admin.store, admin.clock, admin.who, "delete", kind, [name], _shown(old), None)


def _shown(definition: TopicDefinition | GroupDefinition | ApplicationDefinition | GateSettings) -> dict[str, Any]:
    if isinstance(definition, ApplicationDefinition):
        return definition.without_secrets()
    return definition.to_value()
