"""Types of settings: how a value is checked, written to the store and described to people and programs.

Siblings that only groups use (back-offs, filters) are in group_values.py.
"""

from dataclasses import dataclass
from typing import Any

from common.config.checks import Checks
from common.quoting import listed


@dataclass(frozen=True)
class ValueType:
    """Base of all types.

    Attributes:
        unit: of the stored value; empty: it has none.
    """

    unit: str = ""

    @property
    def rule(self) -> str:
        """The range or the choices, as the reference page and `--help` show them."""
        raise NotImplementedError

    def check(self, checks: Checks, field: str, default: Any) -> Any:
        """The field's value, with its faults reported to `checks`."""
        raise NotImplementedError

    def stored(self, value: Any) -> Any:
        """The value in JSON types."""
        return value

    def shown(self, value: Any) -> str:
        """The value as `--help` and the reference page show a default."""
        if value in ((), "", {}):
            return "none"
        return f"{value:,}" if type(value) is int else str(value)

    def described(self) -> dict[str, Any]:
        """Type and bounds as JSON values, for forms and the API."""
        raise NotImplementedError


@dataclass(frozen=True)
class WholeNumber(ValueType):
    """A whole number."""

    low: int = 0
    high: int = 0

    @property
    def rule(self) -> str:
        return f"{self.low:,} to {self.high:,}"

    def check(self, checks: Checks, field: str, default: int) -> int:
        return checks.integer(field, default, self.low, self.high)

    def described(self) -> dict[str, Any]:
        return {"type": "integer", "min": self.low, "max": self.high}


@dataclass(frozen=True)
class OneOf(ValueType):
    """One word out of a fixed set."""

    choices: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        return listed(self.choices)

    def check(self, checks: Checks, field: str, default: str) -> str:
        return checks.choice(field, default, self.choices)

    def described(self) -> dict[str, Any]:
        return {"type": "choice", "choices": list(self.choices)}


@dataclass(frozen=True)
class Flag(ValueType):
    """A boolean."""

    @property
    def rule(self) -> str:
        return "true or false"

    def check(self, checks: Checks, field: str, default: bool) -> bool:
        return checks.boolean(field, default)

    def shown(self, value: bool) -> str:
        return str(value).lower()

    def described(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class ListType(ValueType):
    """Base of lists, which a command line builds from repeated options."""

    count_max: int = 0
    item: str = "text"

    @property
    def rule(self) -> str:
        return f"at most {self.count_max:,}"

    def stored(self, value: tuple[str, ...]) -> list[str]:
        return list(value)

    def described(self) -> dict[str, Any]:
        return {"type": "list", "of": self.item, "count_max": self.count_max}


@dataclass(frozen=True)
class NameList(ListType):
    """NameList of topics or groups."""

    item: str = "name"

    def check(self, checks: Checks, field: str, default: tuple[str, ...]) -> tuple[str, ...]:
        return checks.names(field, self.count_max)


@dataclass(frozen=True)
class TextList(ListType):
    """TextList of 1 to 256 characters, without repetition."""

    def check(self, checks: Checks, field: str, default: tuple[str, ...]) -> tuple[str, ...]:
        return checks.texts(field, self.count_max)


@dataclass(frozen=True)
class NetworkList(ListType):
    """IP networks or addresses."""

    item: str = "network"

    def check(self, checks: Checks, field: str, default: tuple[str, ...]) -> tuple[str, ...]:
        return checks.networks(field, self.count_max)


@dataclass(frozen=True)
class AnyOf(ListType):
    """A list of words out of a fixed set, without repetition."""

    choices: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        return f"any of {', '.join(self.choices)}"

    def check(self, checks: Checks, field: str, default: tuple[str, ...]) -> tuple[str, ...]:
        return checks.choices(field, self.choices)

    def described(self) -> dict[str, Any]:
        return {"type": "list", "of": "choice", "choices": list(self.choices)}
