"""The base of all definitions: frozen values that are checked, stored and described by their table of settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from common.config.checks import Checks
from common.config.errors import InvalidDefinition
from common.config.setting import table_of
from common.quoting import thing


@dataclass(frozen=True)
class Definition:
    """One entry of the configuration. A subclass declares its settings as fields, see setting.py.

    Attributes:
        extra: fields that this version does not know. They are written back, so that an older command does not drop
            what a newer one has set.
    """

    kind: ClassVar[str]

    name: str
    extra: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    @classmethod
    def from_value(cls, name: str, value: Mapping[str, Any]) -> Self:
        """Make a definition from its stored form. Raises InvalidDefinition with all faults at once."""
        if not isinstance(value, Mapping):
            raise InvalidDefinition(thing(cls.kind, name), ["not a JSON object"])
        checks = Checks(cls.kind, name, value)
        own_name = cls.checked_name(checks)
        given = cls._checked_settings(checks)
        made = cls(name=own_name, **given, **cls.checked_parts(checks), extra=cls.unknown(checks))
        made.check_together(checks)
        checks.raise_faults()
        return made

    @classmethod
    def check_settings(cls, name: str, value: Mapping[str, Any]) -> None:
        """Check new values of single settings, before the definition that they change is known.

        Raises InvalidDefinition.
        """
        checks = Checks(cls.kind, name, value)
        cls._checked_settings(checks)
        checks.raise_faults()

    @classmethod
    def _checked_settings(cls, checks: Checks) -> dict[str, Any]:
        """Check the settings that have a value. The others keep their defaults, which need no check."""
        given, table = checks.given, table_of(cls)
        return {name: each.type.check(checks, name, each.default) for name, each in table.items() if name in given}

    @classmethod
    def checked_name(cls, checks: Checks) -> str:
        return checks.own_name()

    @classmethod
    def checked_parts(cls, checks: Checks) -> dict[str, Any]:
        """Check the fields that are not settings."""
        return {}

    @classmethod
    def unknown(cls, checks: Checks) -> dict[str, Any]:
        """Keep the fields of another version; called after all other checks."""
        return checks.rest()

    def check_together(self, checks: Checks) -> None:
        """Check the rules about several fields."""

    def complete(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """A new stored form of this definition, with what follows from the settings that it changes."""
        return value

    def to_value(self) -> dict[str, Any]:
        """The stored form, which `from_value` reads."""
        return {**self.extra, **self._stored_settings()}

    def _stored_settings(self) -> dict[str, Any]:
        found = {}
        for each in table_of(type(self)).values():
            value = getattr(self, each.name)
            if each.is_stored_always or value != each.default:
                found[each.name] = each.type.stored(value)
        return found
