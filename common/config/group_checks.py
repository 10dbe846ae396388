"""Checks of what only groups have: back-offs and filters."""

from collections.abc import Mapping
from typing import Any

from common.config.checks import Checks
from common.filter.errors import FilterError
from common.filter.expression import read_filter
from common.names import NAME_RULE, is_name
from common.retry import RULE as RETRY_RULE
from common.retry import Retry, parse_retry

TOPIC_FILTERS_MAX = 100


def checked_retry(checks: Checks, default: Retry) -> Retry:
    """The field `retry`."""
    found = parse_retry(checks.take("retry", default.to_value()))
    if found is None:
        checks.fault("retry", f"must be {RETRY_RULE}")
    return found or default


def checked_filter(checks: Checks, name: str, text: Any) -> str:
    """The text, if it is a filter."""
    if not isinstance(text, str):
        checks.fault(name, "must be a filter as text")
        return ""
    if text:
        try:
            read_filter(text)
        except FilterError as error:
            checks.fault(name, str(error))
    return text


def checked_topic_filters(checks: Checks) -> dict[str, str]:
    """The field `topic_filters`."""
    given = checks.take("topic_filters", {})
    if not isinstance(given, Mapping) or len(given) > TOPIC_FILTERS_MAX:
        checks.fault("topic_filters", f"must be filters by topic, at most {TOPIC_FILTERS_MAX}")
        return {}
    for topic in given:
        if not is_name(topic):
            checks.fault("topic_filters", f"{str(topic)[:64]!r} is not a name: {NAME_RULE}")
    return {topic: checked_filter(checks, f"topic_filters.{str(topic)[:64]}", text) for topic, text in given.items()}
