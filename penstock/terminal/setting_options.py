"""Options for the settings of a definition, made from its table (common/config/setting.py)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from common.clock import SystemClock
from common.config.definition import Definition
from common.config.group_values import Backoff, FiltersByTopic, FilterText, StartPlace
from common.config.setting import Changes, Setting, table_of
from common.config.text_values import TextValue
from common.config.values import AnyOf, ListType, OneOf, ValueType, WholeNumber
from common.filter.expression import read_filter
from common.retry import parse_retry_text
from penstock.terminal.times import parse_time

LIST_NOTE = "repeatable, replaces the list; an empty value clears it"
FILTERS_NOTE = "repeatable, replaces the list; an empty FILTER is none"


class BackoffType(click.ParamType):
    """A back-off as a person writes it; becomes its stored form."""

    name = "backoff"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return parse_retry_text(value) if isinstance(value, str) else value
        except ValueError as rule:
            self.fail(f"{value!r} is not a back-off: use {rule}", param, ctx)


class StartType(click.ParamType):
    """The place where a group begins; becomes (start, start_at_ms)."""

    name = "start"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if value == "earliest":
            return value, 0
        if value == "latest":
            return value, SystemClock().now_ms()  # not the first pull: what is stored until then is the group's
        try:
            return "time", parse_time(value)
        except ValueError as rule:
            self.fail(f"{value!r} is not a start: use earliest or latest, or {rule}", param, ctx)


class UnitType(click.ParamType):
    """A number in the option's unit; becomes the stored number."""

    name = "number"

    def __init__(self, setting: Setting) -> None:
        assert isinstance(setting.type, WholeNumber) and setting.option
        self._range, self._option = setting.type, setting.option

    @property
    def rule(self) -> str:
        low, high = (bound / self._option.per_unit for bound in (self._range.low, self._range.high))
        return f"{low:,.10g} to {high:,.10g}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            stored = round((int if self._option.is_whole else float)(value) * self._option.per_unit)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a {'whole ' * self._option.is_whole}number: use {self.rule}", param, ctx)
        if not self._range.low <= stored <= self._range.high:
            self.fail(f"{value} is out of range: use {self.rule} {self._option.unit}", param, ctx)
        return stored


class OptionForm(NamedTuple):
    """An option for one type of values.

    Attributes:
        declared: arguments of `click.option`.
        read: converts the option's value to settings; returns None when the option was not given.
    """

    declared: Callable[[Setting], dict[str, Any]]
    read: Callable[[Setting, Any], dict[str, Any] | None]


def settings_options(changes: type[Changes]) -> Callable:
    """Add an option for each setting; the command gets them as its argument `settings`."""
    optional = [each for each in table_of(changes.definition).values() if each.option_name]

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def with_settings(**rest: Any) -> Any:
            given: dict[str, Any] = {}
            for each in optional:
                given |= form_of(each.type).read(each, rest.pop(each.name)) or {}
            return command(settings=changes(**given), **rest)

        wrapped: Callable = with_settings
        for each in reversed(optional):
            declared = form_of(each.type).declared(each)
            wrapped = click.option(f"--{each.option_name}", each.name, help=help_of(each), **declared)(wrapped)
        return wrapped

    return decorate


def help_of(setting: Setting) -> str:
    """The setting's sentence, with range, unit and default in brackets."""
    notes = []
    if isinstance(setting.type, ListType):
        notes.append(LIST_NOTE)
    elif isinstance(setting.type, FiltersByTopic):
        notes.append(FILTERS_NOTE)
    elif isinstance(setting.type, WholeNumber):
        notes.append(UnitType(setting).rule if has_own_unit(setting) else setting.type.rule)
    if setting.change:
        notes.append(setting.change)
    notes += default_notes(setting)
    return f"{setting.help.removesuffix('.')} ({'; '.join(notes)})."


def default_notes(setting: Setting) -> list[str]:
    """The default in the option's unit, and what an unset value means."""
    default = setting.type.shown(setting.default)
    if has_own_unit(setting) and setting.option:
        default = f"{setting.default / setting.option.per_unit:,g}"
    if setting.unset.startswith(f"{default}:"):
        return [f"default {setting.unset}"]
    return [*filter(None, (setting.unset,)), f"default {default}"]


def has_own_unit(setting: Setting) -> bool:
    """Whether the option's unit differs from the unit of the stored value."""
    return setting.option is not None and setting.option.unit != ""


def form_of(value_type: ValueType) -> OptionForm:
    """The form declared for the type or for its nearest base class."""
    return next(FORMS[base] for base in type(value_type).__mro__ if base in FORMS)


def _metavar(setting: Setting) -> str | None:
    return setting.option.metavar if setting.option else None


def _declared_number(setting: Setting) -> dict[str, Any]:
    option = setting.option
    if option is None or not option.unit:  # the definition's check reports all faults at once, with the range
        unit = setting.type.unit
        return {"type": int, "metavar": unit.upper() if unit in ("ms", "bytes") else "N"}
    return {"type": UnitType(setting), "metavar": option.unit.upper()}


def _declared_choices(setting: Setting) -> dict[str, Any]:
    choices = setting.type.choices if isinstance(setting.type, OneOf | AnyOf) else ()
    return {"type": click.Choice([*choices, ""]), "multiple": True, "metavar": "|".join(choices)}


def _read_list(setting: Setting, value: tuple[str, ...]) -> dict[str, Any]:
    return {setting.name: tuple(filter(None, value)) if value else None}


def _read_start(setting: Setting, value: tuple[str, int] | None) -> dict[str, Any] | None:
    return None if value is None else {setting.name: value[0], "start_at_ms": value[1]}


def _read_filter(setting: Setting, text: str | None) -> dict[str, Any]:
    if text:
        read_filter(text)  # raises an error with a caret; the definition's check has room for one line
    return {setting.name: text}


def _read_filters(setting: Setting, given: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    filters = {topic: text for topic, text in given if text}
    for text in filters.values():
        read_filter(text)
    return {setting.name: filters if given else None}


def _read_value(setting: Setting, value: Any) -> dict[str, Any]:
    return {setting.name: value}


FORMS: dict[type, OptionForm] = {
    WholeNumber: OptionForm(_declared_number, _read_value),
    StartPlace: OptionForm(lambda setting: {"type": StartType(), "metavar": _metavar(setting)}, _read_start),
    OneOf: OptionForm(lambda setting: {"type": click.Choice(setting.type.choices)}, _read_value),  # type: ignore[attr-defined]
    AnyOf: OptionForm(_declared_choices, _read_list),
    ListType: OptionForm(lambda setting: {"multiple": True, "metavar": _metavar(setting) or "TEXT"}, _read_list),
    Backoff: OptionForm(lambda setting: {"type": BackoffType(), "metavar": _metavar(setting)}, _read_value),
    TextValue: OptionForm(lambda setting: {"metavar": _metavar(setting) or "TEXT"}, _read_value),
    FilterText: OptionForm(lambda setting: {"metavar": _metavar(setting)}, _read_filter),
    FiltersByTopic: OptionForm(
        lambda setting: {"nargs": 2, "multiple": True, "metavar": _metavar(setting)}, _read_filters
    ),
}


def shown(definition: Definition) -> dict[str, Any]:
    """The definition as stored, with values in the units of their options."""
    value = definition.to_value()
    for name, each in table_of(type(definition)).items():
        if name in value and each.option and each.option.unit:
            value[each.shown_name] = round(value.pop(name) / each.option.per_unit, 3)
    return value
