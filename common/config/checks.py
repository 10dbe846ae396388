"""Collected faults of one definition, so that its author sees all of them at once.

Every method takes one field, returns its value if it is valid and a harmless stand-in if not. `raise_faults` ends the
check. A fault names the field, the value and the rule; values of nested fields are left out, they may be secrets.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from common.config.errors import InvalidDefinition
from common.names import NAME_CHARS_MAX, NAME_RULE, is_name
from common.quoting import listed, quoted, thing

PRINTABLE = re.compile(r"[!-~]+")
ADDRESS = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
PREFIX = re.compile(r"[A-Za-z0-9._-]{1,249}")

FAMILY_RULE = "use a prefix of topic names followed by *: 0–248 characters of A–Z a–z 0–9 . _ - and the *"
PATTERN_RULE = "use a name, or a prefix followed by *"
NETWORK_RULE = "use an IP address or network, such as 10.1.0.0/16 or 2001:db8::/32"


def is_family(name: Any) -> bool:
    """Whether `name` may name a family: a prefix of topic names followed by `*`."""
    return isinstance(name, str) and len(name) <= NAME_CHARS_MAX and name.endswith("*") and is_pattern(name)


def is_pattern(pattern: Any) -> bool:
    """Whether `pattern` is a name, or a prefix of names followed by `*`."""
    if not isinstance(pattern, str):
        return False
    return pattern == "*" or is_name(pattern) or (pattern.endswith("*") and PREFIX.fullmatch(pattern[:-1]) is not None)


class Checks:
    """
    Args:
        kind, name: the definition that is checked.
        value: its fields.
        prefix, faults: of a nested value: the path to it, and the list of the definition that it belongs to.
    """

    def __init__(
        self, kind: str, name: Any, value: Mapping[str, Any], *, prefix: str = "", faults: list[str] | None = None
    ):
        self._kind = kind
        self._name = name
        self._value = dict(value)
        self._prefix = prefix
        self._faults: list[str] = [] if faults is None else faults

    def inside(self, field: str, value: Mapping[str, Any]) -> "Checks":
        """Checks of a nested value, whose faults are reported here."""
        return Checks(self._kind, self._name, value, prefix=f"{self._prefix}{field}.", faults=self._faults)

    def fault(self, field: str, rule: str) -> None:
        self._faults.append(f"{self._prefix}{field}: {rule}")

    def wrong(self, field: str, value: Any, problem: str, rule: str) -> None:
        """A fault with the value that has it. A nested value is not shown: it may be a secret."""
        shown = "the value" if self._prefix else quoted(value)
        self.fault(field, f"{shown} {problem}: {rule}")

    def own_name(self) -> str:
        if not isinstance(self._name, str) or not is_name(self._name):
            self._faults.append(f"invalid name: {NAME_RULE}")
        return str(self._name)

    def own_family(self) -> str:
        if not is_family(self._name):
            self._faults.append(f"invalid name: {FAMILY_RULE}")
        return str(self._name)

    def integer(self, field: str, default: int, low: int, high: int) -> int:
        value = self._value.pop(field, default)
        rule = f"use {low:,} to {high:,}"
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(field, value, "is not a whole number", rule)
            return default
        if not low <= value <= high:
            self.fault(field, f"{value:,} is out of range: {rule}")
        return value

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that no check has taken yet."""
        return frozenset(self._value)

    def take(self, field: str, default: Any) -> Any:
        """The field's unchecked value, for a check by the caller."""
        return self._value.pop(field, default)

    def boolean(self, field: str, default: bool) -> bool:
        value = self._value.pop(field, default)
        if not isinstance(value, bool):
            self.wrong(field, value, "is neither true nor false", "use true or false")
            return default
        return value

    def choice(self, field: str, default: str, choices: Sequence[str]) -> str:
        value = self._value.pop(field, default)
        if value not in choices:
            self.wrong(field, value, "is not one of the choices", f"use {listed(choices)}")
            return default
        return value

    def text(self, field: str, length_min: int, length_max: int) -> str:
        """A text of printable ASCII without spaces."""
        value = self._value.pop(field, None)
        if not isinstance(value, str) or not (PRINTABLE.fullmatch(value) and length_min <= len(value) <= length_max):
            self.fault(field, f"use {length_min} to {length_max} printable ASCII characters without spaces")
            return ""
        return value

    def addresses(self, field: str, count_max: int) -> str:
        """One or more addresses as HOST:PORT, with an IPv6 address in brackets, separated by commas."""
        value = self._value.pop(field, None)
        parts = value.split(",") if isinstance(value, str) else [""]
        if not all(ADDRESS.fullmatch(each) and 1 <= int(each.rpartition(":")[2]) <= 65_535 for each in parts):
            self.wrong(field, value, "is not an address", "use HOST:PORT, with an IPv6 address in brackets")
            return ""
        if len(set(parts)) < len(parts) or len(parts) > count_max:
            self.wrong(
                field, value, "lists its brokers wrong", f"use each broker once, and at most {count_max} brokers"
            )
            return ""
        return str(value)

    def list_of(self, field: str, item_type: type, count_max: int) -> list[Any]:
        value = self._value.pop(field, [])
        if not isinstance(value, list | tuple) or not all(isinstance(item, item_type) for item in value):
            what = (
                "texts"
                if item_type is str
                else "lists"
                if item_type is list
                else "numbers"
                if item_type is int
                else "objects"
            )
            self.fault(field, f"the value is not a list of {what}: use a list of at most {count_max:,} {what}")
            return []
        if len(value) > count_max:
            self.fault(field, f"{len(value):,} items are too many: use at most {count_max:,}")
        return list(value)

    def names(self, field: str, count_max: int = 10_000) -> tuple[str, ...]:
        value = self.list_of(field, str, count_max)
        for name in value:
            if not is_name(name):
                self.fault(field, f"{quoted(name)} is not a name: {NAME_RULE}")
        return tuple(value)

    def texts(self, field: str, count_max: int) -> tuple[str, ...]:
        """Texts of 1 to 256 characters, without repetition."""
        value = self.list_of(field, str, count_max)
        for text in value:
            if not 1 <= len(text) <= 256:
                self.fault(field, f"a text of {len(text):,} characters: use texts of 1 to 256 characters")
        self._without_repetition(field, value)
        return tuple(value)

    def choices(self, field: str, choices: Sequence[str]) -> tuple[str, ...]:
        """Some of the choices, without repetition."""
        value = self.list_of(field, str, len(choices))
        for unknown in [each for each in value if each not in choices]:
            self.wrong(field, unknown, "is not one of the choices", f"use {listed(choices)}")
        self._without_repetition(field, value)
        return tuple(value)

    def _without_repetition(self, field: str, value: list[str]) -> None:
        if len(set(value)) != len(value):
            twice = next(each for each in value if value.count(each) > 1)
            self.fault(field, f"{quoted(twice)} is listed twice: list each value once")

    def networks(self, field: str, count_max: int) -> tuple[str, ...]:
        """IP networks or addresses, as `ipaddress` writes them."""
        found = []
        for text in self.list_of(field, str, count_max):
            try:
                found.append(str(ipaddress.ip_network(text)))
            except ValueError:
                self.fault(field, f"{quoted(text)} is not an IP address or network: {NETWORK_RULE}")
        return tuple(found)

    def pattern(self, field: str, value: Any) -> bool:
        if is_pattern(value):
            return True
        self.fault(field, f"{quoted(value)} is not a pattern: {PATTERN_RULE}")
        return False

    def rest(self) -> dict[str, Any]:
        """Fields that no check has taken, such as those of another version."""
        return dict(self._value)

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(self._faults)

    def raise_faults(self) -> None:
        if self._faults:
            raise InvalidDefinition(thing(self._kind, self._name), self._faults)
