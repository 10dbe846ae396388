"""A change of a group: the form's fields with the present settings, and the settings that differ. Pure."""

from collections.abc import Mapping
from typing import Any

from common.config.definitions import GroupDefinition
from common.config.errors import InvalidDefinition
from common.config.setting import table_of
from console.asking.consumption_wish import DEFAULTS, FIELDS, parse_consumption, topics_of
from console.errors import InvalidForm

SETTINGS: Mapping[str, str] = {
    **{name: name for name in ("topics", "filter", "retry")}, **{name: each.setting.name for name, each in FIELDS.items()},
}  # fmt: skip
"""Field of the form → setting."""


def fields_of_group(group: GroupDefinition) -> dict[str, str]:
    """The form's fields with the group's present settings."""
    return {
        **{name: each.shown(getattr(group, each.setting.name)) for name, each in FIELDS.items()},
        "filter": group.filter,
        "topics": "\n".join(group.topics),
        "retry": table_of(GroupDefinition)["retry"].type.shown(group.retry),
    }


def parse_group_change(form: Mapping[str, str], group: GroupDefinition) -> tuple[dict[str, Any], str]:
    """The settings that the form changes, as the configuration stores them, and the reason. Raises InvalidForm.

    A field that was left as it is keeps its setting, whatever the form could say of it.
    """
    present = fields_of_group(group)
    given = {field: form.get(field, "").strip() for field in SETTINGS}
    given["topics"] = "\n".join(topics_of(given["topics"]))
    changed = {field: text for field, text in given.items() if text != present[field]}
    rest = {"name": group.name, "application": "any", "topics": "any", "description": form.get("reason", "")}
    order = {"order": "key"} if "order" not in changed else {}  # the rule for both is checked with the present settings
    try:
        wish = parse_consumption({**DEFAULTS, **rest, **order, **changed})
    except InvalidForm as error:
        named = {"description": "reason"}
        raise InvalidForm({named.get(field, field): text for field, text in error.faults.items()}) from error
    if not changed:
        raise InvalidForm({"": "Nothing differs from the present settings."})
    settings = wish.settings()
    default_retry = table_of(GroupDefinition)["retry"].default.to_value()
    wanted = {SETTINGS[field]: settings.get(SETTINGS[field], default_retry) for field in changed}
    try:
        GroupDefinition.from_value(group.name, {**group.to_value(), **wanted})
    except InvalidDefinition as error:
        raise InvalidForm({"": "; ".join(error.faults)}) from error
    return wanted, wish.description
