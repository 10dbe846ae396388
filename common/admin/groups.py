"""Consumer groups: create, list, show, set, delete. Lag and reset are the engine's: see engine/client/admin.py."""

from dataclasses import dataclass
from typing import Any

from common.admin import administrator as verbs
from common.admin.administrator import Administrator
from common.config.definitions import GroupDefinition


@dataclass(frozen=True)
class GroupSettings:
    """What a caller may choose; None leaves the default, or what was there."""

    topics: tuple[str, ...] | None = None
    invisible_ms: int | None = None
    start: str | None = None
    start_at_ms: int | None = None
    attempts_max: int | None = None
    retry: Any = None
    """As stored: a list of delays, or the parts of an exponential one."""
    dead_letter_retention_ms: int | None = None
    rate_messages: int | None = None
    rate_bytes: int | None = None
    filter: str | None = None
    """Empty: none any more."""
    topic_filters: dict[str, str] | None = None
    """In place of all that were there."""
    order: str | None = None
    on_failure: str | None = None

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


def create(admin: Administrator, name: str, settings: GroupSettings) -> GroupDefinition:
    """A group needs a definition only for settings that differ from the defaults, or to be pulled without naming topics."""
    made = GroupDefinition.from_value(name, settings.given())
    verbs.create(admin, [made])
    return made


def list_groups(admin: Administrator, prefix: str = "", after: str = "", limit: int = 1000) -> list[GroupDefinition]:
    return [group for group, _ in verbs.page(admin, GroupDefinition, prefix, after, limit)]


def show(admin: Administrator, name: str) -> tuple[GroupDefinition, int]:
    return verbs.get(admin, GroupDefinition, name)


def set_group(admin: Administrator, name: str, settings: GroupSettings) -> GroupDefinition:
    return verbs.change(admin, GroupDefinition, name, lambda old: _changed(old, settings))


def set_paused(admin: Administrator, name: str, paused: bool) -> GroupDefinition:
    """Hand out nothing to the group, or again. A group without a definition gets one."""
    if not admin.store.taken("group", [name]):
        create(admin, name, GroupSettings())
    return verbs.change(
        admin, GroupDefinition, name, lambda old: GroupDefinition.from_value(name, {**old.to_value(), "paused": paused})
    )


def _changed(old: GroupDefinition, settings: GroupSettings) -> GroupDefinition:
    return GroupDefinition.from_value(old.name, {**old.to_value(), **settings.given()})


def delete(admin: Administrator, name: str) -> None:
    """Removes the settings; the group's progress stays with the engine."""
    verbs.delete(admin, GroupDefinition, name)
