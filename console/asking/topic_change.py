"""A change of a topic: the form's fields in their units, the settings that differ, and the rows of a comparison. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from common.config.definitions import TopicDefinition
from common.config.errors import InvalidDefinition
from common.config.setting import table_of
from console.asking.message_schema import text_fault
from console.asking.setting_fields import SettingField, by_name, setting_field
from console.database.topic_notes import SCHEMA, SCHEMA_BASE
from console.errors import InvalidForm
from console.shown import label, setting

FIELDS: Mapping[str, SettingField] = by_name(
    setting_field(TopicDefinition, "queues", "Queues"),
    setting_field(TopicDefinition, "retention_ms", "Retention"),
    setting_field(TopicDefinition, "rate_messages", "Limit"),
    setting_field(TopicDefinition, "body_bytes_max", "Largest body"),
    setting_field(TopicDefinition, "durability", "Durability"),
    setting_field(TopicDefinition, "grade", "Grade in overload"),
    setting_field(TopicDefinition, "buffer", "Fallback buffer"),
    setting_field(TopicDefinition, "body_format", "Format"),
)
REASON_CHARS_MAX = 1_000


class ChangedSetting(NamedTuple):
    """One row of a comparison: when it was asked for, now, and wanted, each as shown."""

    name: str
    base: str
    now: str
    wanted: str
    is_moved: bool


def fields_of(topic: TopicDefinition) -> dict[str, str]:
    """The form's fields with the topic's present settings."""
    return {name: each.shown(getattr(topic, each.setting.name)) for name, each in FIELDS.items()}


def parse_change(
    form: Mapping[str, str], topic: TopicDefinition, schema: str = ""
) -> tuple[dict[str, Any], dict[str, str]]:  # fmt: skip
    """The settings that the form changes, as the configuration stores them; and the schema's texts, new and old, if it differs.

    Args:
        schema: the present JSON schema of the bodies; a form without the field keeps it.
    Raises:
        InvalidForm
    """
    faults: dict[str, str] = {}
    more = _schema_change(form, schema, faults)
    wanted = _changed(form, topic, faults)
    if wanted.get("queues", topic.queues) < topic.queues:
        faults["queues"] = f"A topic keeps its queues: use {topic.queues:,} or more."
    if not 1 <= len(form.get("reason", "").strip()) <= REASON_CHARS_MAX:
        faults["reason"] = f"Say in 1 to {REASON_CHARS_MAX:,} characters what the change is for."
    if more.get(SCHEMA, schema) and not faults and form["body_format"] != "json":
        faults["body_format"] = "A JSON schema is for bodies that are JSON: choose json, or leave the schema out."
    if not wanted and not more and not faults:
        faults[""] = "Nothing differs from the present settings."
    if faults:
        raise InvalidForm(faults)
    try:
        TopicDefinition.from_value(topic.name, {**topic.to_value(), **wanted})
    except InvalidDefinition as error:
        raise InvalidForm({"": "; ".join(error.faults)}) from error
    return wanted, more


def _schema_change(form: Mapping[str, str], schema: str, faults: dict[str, str]) -> dict[str, str]:
    text = form.get(SCHEMA, schema).replace("\r\n", "\n").strip()
    if text == schema:
        return {}
    if fault := text_fault(text):
        faults[SCHEMA] = fault
    return {SCHEMA: text, SCHEMA_BASE: schema}


def _changed(form: Mapping[str, str], topic: TopicDefinition, faults: dict[str, str]) -> dict[str, Any]:
    present = fields_of(topic)
    return {
        each.setting.name: each.parse_stored(form, faults)
        for name, each in FIELDS.items()
        if form.get(name, "").strip().replace(",", "") != present[name]
    }


def compared(
    base: Mapping[str, Any], now: Mapping[str, Any] | None, wanted: Mapping[str, Any], of: type = TopicDefinition
) -> list[ChangedSetting]:  # fmt: skip
    """Settings that the change is about, and those that have changed since it was asked for.

    Args:
        now: the present settings; None: the topic or group is gone.
        of: the definition whose settings they are.
    """
    rows = []
    for name, each in table_of(of).items():
        default = each.type.stored(each.default)
        was = base.get(name, default)
        present = was if now is None else now.get(name, default)
        new = wanted.get(name, present)
        if name in wanted or present != was:
            before, at_present, to = (setting(name, value) for value in (was, present, new))
            rows.append(ChangedSetting(label(name), before, at_present, to, present != was))
    return rows
