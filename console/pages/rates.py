"""Limits of one application or group, as `penstock app set` and `penstock group set` change them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from flask import redirect
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.admin import applications, groups
from common.admin.applications import ApplicationSettings
from common.admin.groups import GroupSettings
from common.config.definition import Definition
from console.entries import whole
from console.errors import InvalidForm
from console.parts import account, actor, form, parts
from console.roles import Role
from console.routes import action, with_said

RATES = ("rate_messages", "rate_bytes")
NUMBER_MAX = 1 << 50
SAID = "The limits are changed. Every proxy follows within a second."


class Limited(NamedTuple):
    """A kind of the configuration that has limits of its own, with its verbs."""

    kind: str
    path: str
    show: Callable[..., tuple[Definition, int]]
    change: Callable[..., Definition]
    settings: Callable[..., Any]


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


def _change(limited: Limited, name: str) -> ResponseReturnValue:
    """Change both limits, unless another person has changed the definition since the form was made."""
    numbers = {field: whole(form().get(field, ""), NUMBER_MAX) for field in (*RATES, "version")}
    if faults := {field: "Use a whole number." for field, number in numbers.items() if number is None}:
        raise InvalidForm(faults)
    if not numbers["version"]:
        raise NotFound(f"{limited.kind} {name[:249]} has no definition that can be changed.")
    admin = parts().configuration.admin(account().name)
    old, _ = limited.show(admin, name)
    new = limited.change(
        admin, name, limited.settings(**{field: numbers[field] for field in RATES}), numbers["version"]
    )
    before, after = ({field: getattr(each, field) for field in RATES} for each in (old, new))
    parts().log.note(actor(), "change limits", f"{limited.kind} {name}", before, after)
    return redirect(with_said(f"/{limited.path}/{name}"), 303)
