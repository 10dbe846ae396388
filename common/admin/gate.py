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
    try:
        return verbs.get(admin, GateSettings, NAME)[0]
    except EntryNotFound:
        return GateSettings()


def set_gate(admin: Administrator, settings: GateChanges) -> GateSettings:
    """Change some settings. Every producer proxy follows within a second. Raises InvalidDefinition."""
    try:
        return verbs.set_settings(admin, GateSettings, NAME, settings)
    except EntryNotFound:
        made = GateSettings.from_value(NAME, settings.given())
        verbs.create(admin, [made])
        return made
