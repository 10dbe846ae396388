"""Limits, grades and features of all producer proxies: the setting `gate`, as `penstock gate set` changes it."""

from collections.abc import Mapping
from typing import Any

from flask import redirect, render_template
from flask.typing import ResponseReturnValue

from common.admin import gate
from common.admin.gate import GateChanges
from common.config.definitions import GRADES
from common.config.errors import ConfigError, InvalidDefinition
from common.config.gate_settings import FEATURES, GateSettings
from console.asking.setting_fields import setting_field
from console.entries import whole
from console.errors import InvalidForm, RequestConflict
from console.installation.processes import AppliedState, applied_states
from console.parts import account, actor, form, parts
from console.roles import Role
from console.routes import action, page, with_said

FIELDS = (
    setting_field(GateSettings, "rate_messages", "Messages through each proxy"),
    setting_field(GateSettings, "rate_bytes", "Bytes through each proxy"),
    setting_field(GateSettings, "queue_ms", "Time of an append before its queue counts as overloaded"),
)
NUMBERS = tuple(each.name for each in FIELDS)
LISTS: Mapping[str, tuple[str, ...]] = {"grades_off": GRADES, "features_off": FEATURES}
NUMBER_MAX = 1 << 50


@page("/limits", role=Role.OPERATOR, title="Limits", menu=2)
def form_page() -> ResponseReturnValue:
    """The settings in force, and who has applied them."""
    found, version = gate.show_versioned(parts().configuration.admin("console"))
    return _form_page(found.to_value(), version, {})


def _form_page(
    values: Mapping[str, Any], version: int, faults: Mapping[str, str], status: int = 200
) -> ResponseReturnValue:
    shown = {
        "values": values,
        "version": version,
        "faults": faults,
        "fields": FIELDS,
        "lists": LISTS,
        "applied": _applied(version),
    }
    return render_template("installation/limits.html", **shown), status


def _applied(version: int) -> list[AppliedState]:
    """None has to apply anything while there is no entry."""
    if not version:
        return []
    try:
        store = parts().configuration.store
        return applied_states(store, {"setting": store.version(("setting",))["setting"]})
    except ConfigError:
        return []


@action("/limits", role=Role.OPERATOR, said="The limits are changed. Every proxy follows within a second.")
def change() -> ResponseReturnValue:
    """Change the settings, unless another person was faster. Every producer proxy follows within a second."""
    fields = form()
    wanted: dict[str, Any] = {name: fields.get(name, "") for name in NUMBERS}
    wanted |= {name: number for name, text in wanted.items() if (number := whole(text, NUMBER_MAX)) is not None}
    wanted |= {name: [each for each in all_ if f"{name}.{each}" in fields] for name, all_ in LISTS.items()}
    seen = whole(fields.get("version", ""), NUMBER_MAX)
    try:
        change_limits(wanted, -1 if seen is None else seen)
    except InvalidForm as error:
        return _form_page(wanted, seen or 0, error.faults, 422)
    return redirect(with_said("/limits"), 303)


def change_limits(wanted: Mapping[str, Any], seen: int) -> GateSettings:
    """Change settings that have the version `seen`. Raises InvalidForm, RequestConflict."""
    admin = parts().configuration.admin(account().name)
    if faults := _faults(wanted):
        raise InvalidForm(faults)
    old, version = gate.show_versioned(admin)
    if seen != version:
        raise RequestConflict(
            "Nothing was changed: another person has changed the limits meanwhile. Look at them again."
        )
    new = gate.set_gate(admin, GateChanges(**wanted), version)
    parts().log.note(actor(), "change limits", "setting gate", old.to_value(), new.to_value())
    return new


def _faults(wanted: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, value in wanted.items():
        try:
            GateSettings.check_settings("gate", {name: value})
        except InvalidDefinition as error:
            found[name] = f"{error.faults[0]}."
    return found
