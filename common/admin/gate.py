"""The setting `gate`: what every producer proxy lets through. It exists once something of it was set."""

from dataclasses import replace
from typing import Any

from common.admin import administrator as verbs
from common.admin.administrator import Administrator
from common.config.errors import EntryNotFound
from common.config.gate_settings import NAME, GateSettings


def show(admin: Administrator) -> GateSettings:
    """The settings at work."""
    try:
        return verbs.get(admin, GateSettings, NAME)[0]
    except EntryNotFound:
        return GateSettings()


def set_gate(admin: Administrator, **given: Any) -> GateSettings:
    """Change what is given. Every producer proxy follows within a second. Raises InvalidDefinition."""
    try:
        return verbs.change(admin, GateSettings, NAME, lambda old: replace(old, **given))
    except EntryNotFound:
        made = GateSettings.from_value(NAME, given)
        verbs.create(admin, [made])
        return made
