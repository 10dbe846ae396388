"""Limits of one application or group, as `penstock app set` and `penstock group set` change them."""

from collections.abc import Callable
from typing import NamedTuple

from flask import redirect
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.admin import applications, groups
from common.admin.applications import ApplicationSettings
from common.admin.groups import GroupSettings
from common.config.definition import Definition
from common.config.setting import Changes
from console.asking.setting_fields import SettingField, setting_field
from console.entries import whole
from console.errors import InvalidForm
from console.parts import account, actor, form, parts
from console.roles import Role
from console.routes import action, with_said

RATES = {"rate_messages": "Messages", "rate_bytes": "Bytes"}
"""The settings, with their words on the forms."""
VERSION_MAX = 1 << 50
SAID = "The limits are changed. Every proxy follows within a second."


class Limited(NamedTuple):
    """A kind of the configuration that has limits of its own, with its verbs."""

    kind: str
    path: str
    show: Callable[..., tuple[Definition, int]]
    change: Callable[..., Definition]
    settings: type[Changes]


APPLICATION = Limited(
    "application", "applications", applications.show, applications.set_application, ApplicationSettings
)
GROUP = Limited("group", "groups", groups.show, groups.set_group, GroupSettings)


@action("/applications/<name>/limits", role=Role.OPERATOR, said=SAID)
def of_application(name: str) -> ResponseReturnValue:
    """Change what every producer proxy accepts from an application."""
    return _change(APPLICATION, name)


@action("/groups/<name>/limits", role=Role.OPERATOR, said=SAID)
def of_group(name: str) -> ResponseReturnValue:
    """Change what is delivered to a group."""
    return _change(GROUP, name)


def rate_fields(definition: type[Definition]) -> list[SettingField]:
    """The fields of the form."""
    return [setting_field(definition, name, label) for name, label in RATES.items()]


def _change(limited: Limited, name: str) -> ResponseReturnValue:
    """Change both limits, unless another person has changed the definition since the form was made."""
    faults: dict[str, str] = {}
    numbers = {
        each.setting.name: each.parse_stored(form(), faults) for each in rate_fields(limited.settings.definition)
    }
    version = whole(form().get("version", ""), VERSION_MAX)
    if version is None:
        faults["version"] = "Use a whole number."
    if faults:
        raise InvalidForm(faults)
    if not version:
        raise NotFound(f"{limited.kind} {name[:249]} has no definition that can be changed.")
    admin = parts().configuration.admin(account().name)
    old, _ = limited.show(admin, name)
    new = limited.change(admin, name, limited.settings(**numbers), version)
    before, after = ({field: getattr(each, field) for field in RATES} for each in (old, new))
    parts().log.note(actor(), "change limits", f"{limited.kind} {name}", before, after)
    return redirect(with_said(f"/{limited.path}/{name}"), 303)
