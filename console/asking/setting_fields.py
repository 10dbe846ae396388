"""Fields of forms that are settings: unit, bounds, choices, default and hint are those of the setting's definition."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common.config.setting import Setting, table_of
from common.config.values import OneOf, WholeNumber
from console.asking.form_rules import Bounds, choice, whole_number


@dataclass(frozen=True)
class SettingField:
    """A field of a form.

    Attributes:
        name: of the field. label: its words on the form.
        unit, per_unit: the unit of the field's value, in words, and its size in stored units.
        words: choices in words, where these are not the stored ones.
    """

    setting: Setting
    name: str
    label: str
    unit: str = ""
    per_unit: int = 1
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def hint(self) -> str:
        """The effect of the value, the meaning of its default, and how it may change."""
        told = (self.setting.help, self._unset(), f"It {self.setting.change}." if self.setting.change else "")
        return " ".join(filter(None, told))

    @property
    def unset(self) -> str:
        """The meaning of the default, or of an empty value."""
        return self.setting.unset

    def _unset(self) -> str:
        return f"{self.unset[:1].upper()}{self.unset[1:]}." if self.unset else ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The stored words of a choice; empty: it is none."""
        return self.setting.type.choices if isinstance(self.setting.type, OneOf) else ()

    @property
    def options(self) -> list[tuple[str, str]]:
        """The choices, each with its words on the form."""
        return [(each, self.words.get(each, each)) for each in self.choices]

    @property
    def bounds(self) -> Bounds:
        """Of a whole number, in the field's unit."""
        kind = self.setting.type
        assert isinstance(kind, WholeNumber), self.name
        told = "; ".join(filter(None, (self.unit, self.unset)))
        return -(-kind.low // self.per_unit), kind.high // self.per_unit, told

    @property
    def default(self) -> str:
        """The setting's default as the field has it."""
        return self.shown(self.setting.default)

    def shown(self, value: Any) -> str:
        """A value of the setting as the field has it."""
        if self.per_unit > 1:
            return f"{value / self.per_unit:g}"
        return str(value) if isinstance(value, int | str) else self.setting.type.shown(value)

    def parse(self, form: Mapping[str, str], faults: dict[str, str]) -> Any:
        """The field's value, of a number in the field's unit. What is wrong is added to `faults`."""
        if self.choices:
            return choice(form, self.name, self.choices, faults)
        return whole_number(form, self.name, self.bounds, faults)

    def stored(self, value: Any) -> Any:
        """A value of the field as the configuration stores it."""
        return value * self.per_unit if isinstance(value, int) else value

    def parse_stored(self, form: Mapping[str, str], faults: dict[str, str]) -> Any:
        """The field's value as the configuration stores it."""
        return self.stored(self.parse(form, faults))


def setting_field(
    definition: type, setting: str, label: str, name: str = "", unit: str = "", per_unit: int = 0,
    words: Mapping[str, str] | None = None,
) -> SettingField:  # fmt: skip
    """A field for a setting of a definition. Name and unit are those of the command line where they are not given."""
    found = table_of(definition)[setting]
    option = found.option if found.option is not None and found.option.unit else None
    own_unit, own_size = (option.unit, option.per_unit) if option is not None else (found.type.unit, 1)
    return SettingField(
        found, name or found.shown_name, label, unit or own_unit, per_unit or own_size, words or {}
    )  # fmt: skip


def by_name(*fields: SettingField) -> dict[str, SettingField]:
    """Fields by their names."""
    return {each.name: each for each in fields}
