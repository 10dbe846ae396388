"""Consumer groups: create, list, show, set, delete.

Lag and reset are verbs of the engine: see engine/client/admin.py.
"""

from common.admin import administrator as verbs
from common.admin import families
from common.admin.administrator import Administrator, OnUnreadable
from common.config.definitions import GroupDefinition
from common.config.errors import EntryNotFound
from common.config.setting import Changes
from common.dead_letters import is_dead_letter_topic
from common.quoting import thing


class GroupSettings(Changes):
    """Settings of a group, in their stored form."""

    definition = GroupDefinition


def create(admin: Administrator, name: str, settings: GroupSettings) -> GroupDefinition:
    """Define a group.

    It needs a definition only for settings that differ from the defaults, or for pulls that name no topic.
    """
    made = GroupDefinition.from_value(name, settings.given())
    verbs.create(admin, [made])
    return made


def list_groups(
    admin: Administrator, prefix: str = "", after: str = "", limit: int = 1000,
    on_unreadable: OnUnreadable | None = None,
) -> list[GroupDefinition]:  # fmt: skip
    """See `administrator.page`."""
    return verbs.page(admin, GroupDefinition, prefix, after, limit, on_unreadable)


def show(admin: Administrator, name: str) -> tuple[GroupDefinition, int]:
    return verbs.get(admin, GroupDefinition, name)


def set_group(
    admin: Administrator, name: str, settings: GroupSettings, seen: int | None = None
) -> GroupDefinition:  # fmt: skip
    """Change a group's settings. `topics` and `topic_filters` replace the whole list. See `administrator.change` for `seen`."""
    return verbs.set_settings(admin, GroupDefinition, name, settings, seen)


def unknown_topics(admin: Administrator, group: GroupDefinition) -> list[str]:
    """The group's topics that have neither a definition nor a family."""
    taken = set(admin.store.taken("topic", list(group.topics)))
    return [
        name
        for name in group.topics
        if name not in taken and not is_dead_letter_topic(name) and families.defining(admin, name) is None
    ]


def is_defined(admin: Administrator, name: str) -> bool:
    """Whether the group has a definition."""
    return bool(admin.store.taken("group", [name]))


def set_paused(admin: Administrator, name: str, paused: bool) -> GroupDefinition:
    """Pause or resume deliveries to the group. Raises EntryNotFound: a mistyped name must not become a group."""
    if not is_defined(admin, name):
        raise EntryNotFound(
            f"{thing('group', name)}: not defined: check the name, or use `penstock group create {name}` first"
        )
    return set_group(admin, name, GroupSettings(paused=paused))


def delete(admin: Administrator, name: str) -> None:
    """Delete the settings; the group's position stays with the engine."""
    verbs.delete(admin, GroupDefinition, name)
