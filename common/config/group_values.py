"""Types of settings that only groups have: back-offs and filters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.config.checks import Checks
from common.config.values import OneOf, ValueType
from common.filter.errors import FilterError
from common.filter.expression import read_filter
from common.names import NAME_RULE, is_name
from common.quoting import quoted
from common.retry import RULE as RETRY_RULE
from common.retry import DelayList, Retry, parse_retry

TOPIC_FILTERS_MAX = 100


@dataclass(frozen=True)
class Backoff(ValueType):
    """The waits between attempts: a list of delays, or delays that grow."""

    unit: str = "ms"

    @property
    def rule(self) -> str:
        return RETRY_RULE

    def check(self, checks: Checks, field: str, default: Retry) -> Retry:
        given = checks.take(field, default.to_value())
        found = parse_retry(given)
        if found is None:
            checks.wrong(field, given, "is not a back-off", f"use {RETRY_RULE}")
        return found or default

    def stored(self, value: Retry) -> Any:
        return value.to_value()

    def shown(self, value: Retry) -> str:
        if isinstance(value, DelayList):
            return ",".join(map(str, value.delays_ms))
        return ",".join(f"{name}={part:g}" for name, part in value.to_value().items())

    def described(self) -> dict[str, Any]:
        return {"type": "backoff"}


@dataclass(frozen=True)
class StartPlace(OneOf):
    """The position at which a group starts on a new topic. For `time`, the time is the setting start_at_ms."""


@dataclass(frozen=True)
class FilterText(ValueType):
    """A filter expression (docs/filters.md)."""

    @property
    def rule(self) -> str:
        return "a filter expression"

    def check(self, checks: Checks, field: str, default: str) -> str:
        return checked_filter(checks, field, checks.take(field, default))

    def described(self) -> dict[str, Any]:
        return {"type": "filter"}


@dataclass(frozen=True)
class FiltersByTopic(ValueType):
    """Filter expressions by topic."""

    @property
    def rule(self) -> str:
        return f"at most {TOPIC_FILTERS_MAX} filter expressions, by topic"

    def check(self, checks: Checks, field: str, default: Mapping[str, str]) -> dict[str, str]:
        given = checks.take(field, {})
        if not isinstance(given, Mapping):
            checks.fault(field, f"the value is not an object: use {self.rule}")
            return {}
        if len(given) > TOPIC_FILTERS_MAX:
            checks.fault(field, f"{len(given):,} filters are too many: use at most {TOPIC_FILTERS_MAX}")
            return {}
        for topic in given:
            if not isinstance(topic, str) or not is_name(topic):
                checks.fault(field, f"{quoted(topic)} is not a name: {NAME_RULE}")
        return {topic: checked_filter(checks, f"{field}.{str(topic)[:64]}", text) for topic, text in given.items()}

    def stored(self, value: Mapping[str, str]) -> dict[str, str]:
        return dict(value)

    def described(self) -> dict[str, Any]:
        return {"type": "filters", "count_max": TOPIC_FILTERS_MAX}


def checked_filter(checks: Checks, field: str, text: Any) -> str:
    """The text if it is a filter expression, else ""."""
    if not isinstance(text, str):
        checks.wrong(field, text, "is not a filter", "use a text, see docs/filters.md")
        return ""
    if text:
        try:
            read_filter(text)
        except FilterError as error:
            checks.fault(field, str(error))
    return text
