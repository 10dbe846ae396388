"""Writes an approved request for consumption, by the verbs behind `penstock group create` and `app grant`.

The group comes first: an application that is granted a group without its definition would get every message, unfiltered.
"""

from common.admin import applications, groups
from common.admin.administrator import Administrator
from common.admin.applications import Grants
from common.admin.groups import GroupSettings
from common.config.definitions import GroupDefinition
from common.config.errors import VersionConflict
from console.asking.consumption_wish import ConsumptionWish
from console.database.user_requests import UserRequest

KINDS = ("group", "application")
"""Of the configuration that the write changes."""
APPLICATION, ADDED = "application", "added_topics"
"""Of what a change asks for beside settings: which application gets grants, and for which topics."""


def write(admin: Administrator, request: UserRequest) -> int:
    """Create the group and grant it to the application; return the group's version. Raises ConfigError.

    A group that has exactly what was asked for is ours: the answer was lost, or the grants were not reached. Granting
    again adds nothing. A change grants the topics that it adds; nothing is taken from an application.
    """
    if request.base_version is not None:
        return _change(admin, request)
    wish = ConsumptionWish.from_value(request.asked)
    applications.show(admin, wish.application)  # before anything is written
    settings = dict(request.settings)
    if settings["start"] == "latest":
        settings["start_at_ms"] = admin.clock.now_ms()  # what is stored from now on is the group's
    try:
        groups.create(admin, request.name, GroupSettings(**settings))
    except VersionConflict:
        found = groups.show(admin, request.name)[0]
        if _settings(found) != _settings(GroupDefinition.from_value(request.name, request.settings)):
            raise
    applications.grant(admin, wish.application, wish.grants())
    return groups.show(admin, request.name)[1]


def _change(admin: Administrator, request: UserRequest) -> int:
    application, added = request.asked.get(APPLICATION, ""), tuple(request.asked.get(ADDED, ()))
    if added:
        applications.show(admin, application)  # before anything is written
    version = _changed_version(admin, request)
    if added:
        applications.grant(admin, application, Grants(pull_topics=added))
    return version


def _changed_version(admin: Administrator, request: UserRequest) -> int:
    try:
        groups.set_group(admin, request.name, GroupSettings(**request.settings), request.base_version)
    except VersionConflict:
        found, version = groups.show(admin, request.name)
        wanted = GroupDefinition.from_value(request.name, {**(request.base or {}), **request.settings})
        if found.to_value() != wanted.to_value():
            raise
        return version
    return groups.show(admin, request.name)[1]


def _settings(group: GroupDefinition) -> dict[str, object]:
    return {name: value for name, value in group.to_value().items() if name not in ("start_at_ms", "paused")}
