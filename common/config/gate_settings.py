"""The setting `gate`: what an operator sets for every producer proxy at once."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from common.config.checks import Checks
from common.config.definitions import GRADES, RATE_BYTES_MAX, RATE_MESSAGES_MAX
from common.config.errors import InvalidDefinition

log = logging.getLogger("penstock.config")
NAME = "gate"
FEATURES = ("delay", "reply", "cancel")


@dataclass(frozen=True)
class GateSettings:
    """
    Attributes:
        rate_messages, rate_bytes: what each proxy takes a second, by itself; 0: no limit.
        queue_ms: what an append may take, at least, before its queue counts as too long. More keeps a slow disk busier, less
            refuses earlier.
        grades_off, features_off: switched off by hand, to take load off an engine in trouble.
    """

    name: str = NAME
    rate_messages: int = 0
    rate_bytes: int = 0
    queue_ms: int = 250
    grades_off: tuple[str, ...] = ()
    features_off: tuple[str, ...] = ()

    @classmethod
    def from_value(cls, name: str, value: Mapping[str, Any]) -> Self:
        """Raises InvalidDefinition with all faults."""
        checks = Checks("setting", name, value)
        made = cls(
            name=name,
            rate_messages=checks.integer("rate_messages", 0, 0, RATE_MESSAGES_MAX),
            rate_bytes=checks.integer("rate_bytes", 0, 0, RATE_BYTES_MAX),
            queue_ms=checks.integer("queue_ms", cls.queue_ms, 10, 10_000),
            grades_off=checks.choices("grades_off", GRADES),
            features_off=checks.choices("features_off", FEATURES),
        )
        for unknown in checks.rest():
            checks.fault(unknown, "there is no such setting")
        checks.raise_faults()
        return made

    @classmethod
    def of(cls, view: Any) -> Self:
        """As the configuration says now; the defaults where it is silent or wrong."""
        value = view.setting(NAME)
        try:
            return cls.from_value(NAME, value or {})
        except InvalidDefinition as fault:
            log.warning("%s; the defaults are used", fault)
            return cls()

    def to_value(self) -> dict[str, Any]:
        value = {name: list(each) if isinstance(each, tuple) else each for name, each in vars(self).items()}
        del value["name"]
        return value
