"""The setting `gate`: limits and switches of every producer proxy. Its entry is created with the first change."""

from common.admin import administrator as verbs
from common.admin.administrator import Administrator
from common.config.errors import EntryNotFound
from common.config.gate_settings import NAME, GateSettings
from common.config.setting import Changes


class GateChanges(Changes):
    """Settings of the gate."""

    definition = GateSettings


def show(admin: Administrator) -> GateSettings:
    """The current settings."""
    return show_versioned(admin)[0]


def show_versioned(admin: Administrator) -> tuple[GateSettings, int]:
    """The current settings and their version; 0: there is no entry, and they are the defaults."""
    try:
        return verbs.get(admin, GateSettings, NAME)
    except EntryNotFound:
        return GateSettings(), 0


def set_gate(admin: Administrator, settings: GateChanges, seen: int | None = None) -> GateSettings:
    """Change some settings. Every producer proxy follows within a second.

    Args:
        seen: the version that the change was decided on, 0 for none; None: any.
    Raises:
        InvalidDefinition. VersionConflict: there is another version than `seen`; nothing was written.
    """
    if seen == 0:
        return _create(admin, settings)
    try:
        return verbs.set_settings(admin, GateSettings, NAME, settings, seen)
    except EntryNotFound:
        return _create(admin, settings)


def _create(admin: Administrator, settings: GateChanges) -> GateSettings:
    made = GateSettings.from_value(NAME, settings.given())
    verbs.create(admin, [made])
    return made
