"""Collects the faults of one definition, so that its author sees all of them at once.

Every method returns the field if it is right and a harmless stand-in if not; `raise_faults` ends the work. Messages never
contain a value, which might be a secret, except a name or a number out of its range.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from common.config.errors import InvalidDefinition
from common.names import NAME_CHARS_MAX, NAME_RULE, is_name

PRINTABLE = re.compile(r"[!-~]+")
ADDRESS = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
PREFIX = re.compile(r"[A-Za-z0-9._-]{1,249}")


FAMILY_RULE = "a prefix of topic names with * behind it: 0 to 248 characters of A-Z a-z 0-9 . _ - and the *"


def is_family(name: Any) -> bool:
    """Whether it is how a family is named: a prefix of topic names with `*` behind it."""
    return isinstance(name, str) and len(name) <= NAME_CHARS_MAX and name.endswith("*") and is_pattern(name)


def is_pattern(pattern: Any) -> bool:
    """Whether it is a name, or a prefix of names with `*` behind it."""
    if not isinstance(pattern, str):
        return False
    return pattern == "*" or is_name(pattern) or (pattern.endswith("*") and PREFIX.fullmatch(pattern[:-1]) is not None)


class Checks:
    def __init__(
        self, kind: str, name: Any, value: Mapping[str, Any], *, prefix: str = "", faults: list[str] | None = None
    ):
        self._kind = kind
        self._name = name
        self._value = dict(value)
        self._prefix = prefix
        self._faults: list[str] = [] if faults is None else faults

    def inside(self, field: str, value: Mapping[str, Any]) -> "Checks":
        """Checks of a nested value that report here."""
        return Checks(self._kind, self._name, value, prefix=f"{self._prefix}{field}.", faults=self._faults)

    def fault(self, field: str, rule: str) -> None:
        self._faults.append(f"{self._prefix}{field}: {rule}")

    def own_name(self) -> str:
        if not isinstance(self._name, str) or not is_name(self._name):
            self.fault("name", NAME_RULE)
        return str(self._name)

    def own_family(self) -> str:
        if not is_family(self._name):
            self.fault("name", FAMILY_RULE)
        return str(self._name)

    def integer(self, field: str, default: int, low: int, high: int) -> int:
        value = self._value.pop(field, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fault(field, f"must be a whole number from {low} to {high}")
            return default
        if not low <= value <= high:
            self.fault(field, f"must be from {low} to {high}, is {value}")
        return value

    def take(self, field: str, default: Any) -> Any:
        """The field as it came, to be checked by the caller."""
        return self._value.pop(field, default)

    def boolean(self, field: str, default: bool) -> bool:
        value = self._value.pop(field, default)
        if not isinstance(value, bool):
            self.fault(field, "must be true or false")
            return default
        return value

    def choice(self, field: str, default: str, choices: Sequence[str]) -> str:
        value = self._value.pop(field, default)
        if value not in choices:
            self.fault(field, f"must be one of {', '.join(choices)}")
            return default
        return value

    def text(self, field: str, length_min: int, length_max: int) -> str:
        """Printable ASCII without spaces."""
        value = self._value.pop(field, None)
        if not isinstance(value, str) or not (PRINTABLE.fullmatch(value) and length_min <= len(value) <= length_max):
            self.fault(field, f"must be {length_min} to {length_max} printable ASCII characters without spaces")
            return ""
        return value

    def address(self, field: str) -> str:
        """HOST:PORT, an IPv6 address in brackets."""
        value = self._value.pop(field, None)
        if not isinstance(value, str) or not (
            ADDRESS.fullmatch(value) and 1 <= int(value.rpartition(":")[2]) <= 65_535
        ):
            self.fault(field, "must be HOST:PORT, with an IPv6 address in brackets")
            return ""
        return value

    def list_of(self, field: str, item_type: type, count_max: int) -> list[Any]:
        value = self._value.pop(field, [])
        if not isinstance(value, list | tuple) or not all(isinstance(item, item_type) for item in value):
            self.fault(field, "must be a list of the right items")
            return []
        if len(value) > count_max:
            self.fault(field, f"must have at most {count_max} items, has {len(value)}")
        return list(value)

    def names(self, field: str, count_max: int = 10_000) -> tuple[str, ...]:
        value = self.list_of(field, str, count_max)
        for name in value:
            if not is_name(name):
                self.fault(field, f"{name[:64]!r} is not a name: {NAME_RULE}")
        return tuple(value)

    def texts(self, field: str, count_max: int) -> tuple[str, ...]:
        """Words of 1 to 256 characters, each once."""
        value = self.list_of(field, str, count_max)
        if any(not 1 <= len(text) <= 256 for text in value) or len(set(value)) != len(value):
            self.fault(field, "must be texts of 1 to 256 characters, each once")
        return tuple(value)

    def choices(self, field: str, choices: Sequence[str]) -> tuple[str, ...]:
        """Some of the choices, each once."""
        value = self.list_of(field, str, len(choices))
        if not set(value) <= set(choices) or len(set(value)) != len(value):
            self.fault(field, f"must be of {', '.join(choices)}, each once")
        return tuple(value)

    def networks(self, field: str, count_max: int) -> tuple[str, ...]:
        """IP networks or addresses, as `ipaddress` writes them."""
        found = []
        for text in self.list_of(field, str, count_max):
            try:
                found.append(str(ipaddress.ip_network(text)))
            except ValueError:
                self.fault(field, f"{text[:64]!r} is no IP address or network, such as 10.1.0.0/16 or 2001:db8::/32")
        return tuple(found)

    def pattern(self, field: str, value: Any) -> bool:
        if is_pattern(value):
            return True
        self.fault(field, f"{str(value)[:64]!r} is not a pattern: a name, or a prefix with * behind it")
        return False

    def rest(self) -> dict[str, Any]:
        """The fields that nobody asked for: another version's."""
        return dict(self._value)

    def raise_faults(self) -> None:
        if self._faults:
            raise InvalidDefinition(f"{self._kind}={str(self._name)[:64]}", self._faults)
