"""Consumer groups: create, list, show, set, delete.

Lag and reset are verbs of the engine: see engine/client/admin.py.
"""

from common.admin import administrator as verbs
from common.admin.administrator import Administrator
from common.config.definitions import GroupDefinition
from common.config.setting import Changes


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


def list_groups(admin: Administrator, prefix: str = "", after: str = "", limit: int = 1000) -> list[GroupDefinition]:
    return [group for group, _ in verbs.page(admin, GroupDefinition, prefix, after, limit)]


def show(admin: Administrator, name: str) -> tuple[GroupDefinition, int]:
    return verbs.get(admin, GroupDefinition, name)


def set_group(admin: Administrator, name: str, settings: GroupSettings) -> GroupDefinition:
    """Change a group's settings. `topics` and `topic_filters` replace the whole list."""
    return verbs.set_settings(admin, GroupDefinition, name, settings)


def set_paused(admin: Administrator, name: str, paused: bool) -> GroupDefinition:
    """Pause or resume deliveries to the group. A group without a definition gets one."""
    if not admin.store.taken("group", [name]):
        create(admin, name, GroupSettings())
    return set_group(admin, name, GroupSettings(paused=paused))


def delete(admin: Administrator, name: str) -> None:
    """Delete the settings; the group's position stays with the engine."""
    verbs.delete(admin, GroupDefinition, name)
