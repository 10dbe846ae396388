"""Settings of topics, families, groups, applications and the gate, each written once: as a field of its definition.

`setting(…)` declares a field. It defines the field's default and check, the administrative verbs' input and the options
of the command line. The reference page docs/settings.md is made from it, and `table_of`, which forms and the API read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from common.config.values import ValueType

T = TypeVar("T")
GROWS, FIXED = "can grow, cannot shrink", "cannot change"
"""Values of `change` that the administrative verbs enforce."""

_KEY = "setting"


@dataclass(frozen=True)
class Option:
    """A setting's form on the command line where it differs from the stored one.

    Attributes:
        name: without dashes, as in `retention-hours`; empty: the setting's own name.
        unit, per_unit: the unit of the option's value, in words, and its size in stored units.
        is_whole: whether the option takes whole numbers only, when it has a unit of its own.
        metavar: placeholder of the value in `--help`.
    """

    name: str = ""
    unit: str = ""
    per_unit: int = 1
    is_whole: bool = False
    metavar: str | None = None


@dataclass(frozen=True)
class Setting:
    """
    Attributes:
        help: one sentence in the imperative: the effect of the value.
        unset: the meaning of the default, or of an empty value.
        more: advice for choosing a value: the cost of a larger and of a smaller one.
        change: how the value may change after creation; empty: freely.
        option: None: the setting is not an option of `create` and `set`.
        is_stored_always: also where it is the default. There may be a million topics, so most are not.
    """

    name: str
    type: ValueType
    default: Any
    help: str
    unset: str = ""
    more: str = ""
    change: str = ""
    option: Option | None = Option()
    is_stored_always: bool = False

    @property
    def option_name(self) -> str:
        """The option without its dashes; empty: it has none."""
        return "" if self.option is None else self.option.name or self.name.replace("_", "-")

    @property
    def shown_name(self) -> str:
        """The name under which commands show the value: the option's where that has a unit of its own."""
        return self.option.name.replace("-", "_") if self.option and self.option.unit else self.name

    def described(self) -> dict[str, Any]:
        """The setting as JSON values, for forms and the API."""
        texts = {"help": self.help, "unset": self.unset, "more": self.more, "change": self.change}
        return {
            "name": self.name,
            **self.type.described(),
            "unit": self.type.unit or None,
            "default": self.type.stored(self.default),
            **{name: text or None for name, text in texts.items()},
            "option": f"--{self.option_name}" if self.option_name else None,
        }


def setting(
    default: T,
    value_type: ValueType,
    help: str,
    *,
    unset: str = "",
    more: str = "",
    change: str = "",
    option: Option | None = Option(),
    is_stored_always: bool = False,
) -> T:
    """A field of a definition that is a setting; see Setting."""
    made = Setting("", value_type, default, help, unset, more, change, option, is_stored_always)
    own: Any = {"default_factory": lambda: default} if isinstance(default, Mapping) else {"default": default}
    made_field: T = field(**own, metadata={_KEY: made})
    return made_field


def table_of(definition: type) -> Mapping[str, Setting]:
    """The settings of a definition by name, in the order of its fields."""
    found = _tables.get(definition)
    if found is None:
        declared = [each for each in fields(definition) if _KEY in each.metadata]
        found = _tables[definition] = {each.name: replace(each.metadata[_KEY], name=each.name) for each in declared}
    return found


_tables: dict[type, Mapping[str, Setting]] = {}


def described(definition: type) -> list[dict[str, Any]]:
    """The table as JSON values."""
    return [each.described() for each in table_of(definition).values()]


class Changes:
    """Values for some settings of one definition; a setting without a value keeps its default, or what was stored.

    An unknown name is a programming error; values are checked by `check`, all at once.
    """

    definition: type

    def __init__(self, **given: Any) -> None:
        table = table_of(self.definition)
        if unknown := [name for name in given if name not in table]:
            raise TypeError(f"{self.definition.__name__} has no setting {', '.join(unknown)}")
        self._given = {name: value for name, value in given.items() if value is not None}

    def given(self) -> dict[str, Any]:
        """The values that were given, by the settings' names."""
        return dict(self._given)

    def __bool__(self) -> bool:
        return bool(self._given)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.given() == self._given

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._given.items())})"
