"""Types of settings that are one text: addresses, paths of files, the home of a topic."""

import re
from dataclasses import dataclass
from typing import Any

from common.config.checks import Checks
from common.config.values import ValueType
from common.names import NAME_RULE, is_name

ENGINE_HOME, KAFKA_HOME = "engine", "kafka:"
"""Homes of topics: the engine, or a prefix that the name of a Kafka cluster follows."""
PATH = re.compile(r"/[^\x00-\x1f\x7f]{1,1023}")
OFFSETS = re.compile(r"[0-9]{1,19}(,[0-9]{1,19})*")
USER = re.compile(r"[^\x00-\x1f\x7f]{1,256}")


@dataclass(frozen=True)
class TextValue(ValueType):
    """Base of texts; an empty one is unset."""

    @property
    def rule(self) -> str:
        return "a text"

    def check(self, checks: Checks, field: str, default: str) -> str:
        value = checks.take(field, default)
        if not isinstance(value, str) or (value and not self.is_valid(value)):
            checks.wrong(field, value, "is not valid", f"use {self.rule}")
            return default
        return value

    def is_valid(self, value: str) -> bool:
        return USER.fullmatch(value) is not None

    def described(self) -> dict[str, Any]:
        return {"type": "text"}


@dataclass(frozen=True)
class AddressList(TextValue):
    """HOST:PORT, several separated by commas."""

    count_max: int = 0

    @property
    def rule(self) -> str:
        return f"HOST:PORT[,…], at most {self.count_max}"

    def check(self, checks: Checks, field: str, default: str) -> str:
        return checks.addresses(field, self.count_max)


@dataclass(frozen=True)
class FilePath(TextValue):
    """An absolute path on the machine of the process that reads the file."""

    @property
    def rule(self) -> str:
        return "an absolute path"

    def is_valid(self, value: str) -> bool:
        return PATH.fullmatch(value) is not None


@dataclass(frozen=True)
class HomeOfTopic(TextValue):
    """`engine`, or `kafka:` and the name of a Kafka cluster."""

    @property
    def rule(self) -> str:
        return "engine or kafka:NAME"

    def check(self, checks: Checks, field: str, default: str) -> str:
        return self._checked(checks, field, checks.take(field, default), default)

    def _checked(self, checks: Checks, field: str, value: Any, default: str) -> str:
        if value == ENGINE_HOME:
            return ENGINE_HOME
        if not isinstance(value, str) or not value.startswith(KAFKA_HOME):
            checks.wrong(field, value, "is not a home", "use engine, or kafka: and the name of a Kafka cluster")
            return default
        if not is_name(value.removeprefix(KAFKA_HOME)):
            checks.wrong(field, value, "names no Kafka cluster", NAME_RULE)
            return default
        return value


@dataclass(frozen=True)
class OffsetList(TextValue):
    """Offsets, separated by commas."""

    @property
    def rule(self) -> str:
        return "whole numbers from 0 on, separated by commas"

    def is_valid(self, value: str) -> bool:
        return OFFSETS.fullmatch(value) is not None


@dataclass(frozen=True)
class SecondaryOfTopic(HomeOfTopic):
    """As HomeOfTopic, or empty: the topic has one side."""

    def check(self, checks: Checks, field: str, default: str) -> str:
        value = checks.take(field, default)
        return "" if value == "" else self._checked(checks, field, value, default)


def kafka_cluster_of(home: str) -> str | None:
    """The name of the Kafka cluster that is one side of a topic; None: the engine is, or there is no such side."""
    return home.removeprefix(KAFKA_HOME) if home.startswith(KAFKA_HOME) else None
