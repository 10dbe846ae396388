"""The setting `gate`: limits and switches that every producer proxy follows."""

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from common.config.checks import Checks
from common.config.definition import Definition
from common.config.definitions.common import GRADES, rate_bytes, rate_messages
from common.config.errors import InvalidDefinition
from common.config.setting import Option, setting
from common.config.values import AnyOf, WholeNumber
from common.limited_log import LimitedLog

limited = LimitedLog(logging.getLogger("penstock.config"))
NAME = "gate"
FEATURES = ("delay", "reply", "cancel")

_EACH_PROXY = "through each producer proxy"


class SettingView(Protocol):
    """The part of ConfigView that is needed here."""

    def setting(self, name: str) -> dict[str, Any] | None: ...


@dataclass(frozen=True)
class GateSettings(Definition):
    """The settings of the gate; there is one entry of this kind."""

    kind: ClassVar[str] = "setting"

    name: str = NAME
    rate_messages: int = rate_messages("Accept", _EACH_PROXY, is_stored_always=True)
    rate_bytes: int = rate_bytes("Accept", _EACH_PROXY, is_stored_always=True)
    queue_ms: int = setting(
        250,
        WholeNumber("ms", 10, 10_000),
        "Let an append take this long before its queue counts as overloaded.",
        more="A longer time keeps a slow disk busier; a shorter one rejects earlier.",
        is_stored_always=True,
    )
    grades_off: tuple[str, ...] = setting(
        (),
        AnyOf("", choices=GRADES),
        "Reject messages to topics of this grade, to relieve an overloaded engine.",
        unset="none: all grades are accepted",
        option=Option("grade-off", metavar="GRADE"),
        is_stored_always=True,
    )
    features_off: tuple[str, ...] = setting(
        (),
        AnyOf("", choices=FEATURES),
        "Reject messages that use this feature.",
        unset="none: all features are accepted",
        option=Option("feature-off", metavar="FEATURE"),
        is_stored_always=True,
    )

    @classmethod
    def checked_name(cls, checks: Checks) -> str:
        return NAME

    @classmethod
    def unknown(cls, checks: Checks) -> dict[str, Any]:
        """No field of another version is accepted: a proxy that ignored a limit would not protect the engine."""
        for field in checks.rest():
            checks.fault(field, "is unknown: use a setting of `penstock gate set --help`")
        return {}

    @classmethod
    def of(cls, view: SettingView) -> Self:
        """The current settings; the defaults where there are none, or wrong ones."""
        value = view.setting(NAME)
        try:
            return cls.from_value(NAME, value or {})
        except InvalidDefinition as fault:
            limited.warning("setting=%s: invalid, the defaults are used: %s", NAME, fault)
            return cls()
