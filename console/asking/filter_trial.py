"""A filter tried on stored messages: which match, which do not, and the outcome of each of its conditions. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from common.filter.expression import read_filter
from common.filter.formula import formula_of
from common.filter.native import Filter
from common.filter.nodes import (
    PREDICATES,
    And,
    CompareFields,
    Condition,
    Field,
    FieldSource,
    IsUnknown,
    Negated,
    Not,
    Or,
    Predicate,
    Same,
)
from common.filter.printing import print_condition

CONDITIONS_MAX = 20
TRUE, FALSE, UNKNOWN = "true", "false", "unknown"
MISSING = "missing"


class TriedCondition(NamedTuple):
    """One condition of the filter on one message. `values`: of the fields that it compares, or `missing`."""

    text: str
    outcome: str
    values: str


class TriedMessage(NamedTuple):
    """Whether one message passes, and why."""

    passes: bool
    conditions: list[TriedCondition]


class FilterTrial:
    """A filter with its conditions, each compiled by itself as the engine compiles filters. Raises FilterError.

    Attributes:
        meaning: the filter in SQL style, with brackets.
        has_more: it has more conditions than are told one by one.
    """

    def __init__(self, text: str) -> None:
        expression = read_filter(text)
        self.meaning = print_condition(expression.condition)
        self._filter = Filter(expression.formula)
        predicates = list(dict.fromkeys(predicates_of(expression.condition)))
        self.has_more = len(predicates) > CONDITIONS_MAX
        self._conditions = [
            (each, print_condition(each), Filter(formula_of(each)), Filter(formula_of(IsUnknown(each))))
            for each in predicates[:CONDITIONS_MAX]
        ]

    def of(self, message: bytes, key: str | None, tag: str | None, properties: Mapping[str, str]) -> TriedMessage:
        """Try it on one message.

        Args:
            message: as stored; the others are parts of it.
        """
        found = []
        for predicate, text, holds, is_unknown in self._conditions:
            outcome = TRUE if holds.passes(message) else UNKNOWN if is_unknown.passes(message) else FALSE
            values = [f"{_shown(field)}: {_value(field, key, tag, properties)}" for field in fields_of(predicate)]
            found.append(TriedCondition(text, outcome, ", ".join(values)))
        return TriedMessage(self._filter.passes(message), found)


def predicates_of(condition: Condition) -> Iterator[Predicate]:
    """The conditions that a filter is made of, from left to right."""
    if isinstance(condition, And | Or):
        for part in condition.parts:
            yield from predicates_of(part)
    elif isinstance(condition, Not | IsUnknown):
        yield from predicates_of(condition.inner)
    elif isinstance(condition, Same):
        yield from predicates_of(condition.left)
        yield from predicates_of(condition.right)
    elif isinstance(condition, PREDICATES):
        yield condition


def fields_of(predicate: Predicate) -> Sequence[Field]:
    """The fields of a message that a condition reads."""
    operands = (predicate.left, predicate.right) if isinstance(predicate, CompareFields) else (predicate.field,)
    return [each.field if isinstance(each, Negated) else each for each in operands]


def _shown(field: Field) -> str:
    return {FieldSource.TAG: "tag", FieldSource.KEY: "key"}.get(field.source, field.name)


def _value(field: Field, key: str | None, tag: str | None, properties: Mapping[str, str]) -> str:
    found = {FieldSource.TAG: tag, FieldSource.KEY: key}.get(field.source, properties.get(field.name))
    return MISSING if found is None else f"“{found[:80]}{'…' if len(found) > 80 else ''}”"
