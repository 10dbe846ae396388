"""Partial evaluation: the rest of a formula once something is known of one field.

A key is a field read as text or as number. Three facts are possible about a message and a key: the value is one of the
constants that the formula compares with it for equality; it is another value; there is none. Each leaves a shorter
formula, often just TRUE or FALSE.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from common.filter.formula import FALSE, UNKNOWN, All, Any, Formula, Test, all_of, any_of
from common.filter.match import outcome
from common.filter.nodes import (
    CompareFields,
    CompareNumber,
    CompareText,
    Field,
    InNumbers,
    InTexts,
    IsNull,
    Negated,
    Predicate,
    Relation,
)  # fmt: skip
from common.filter.numbers import Number
from common.filter.program import compile_formula

Value = bytes | Number


class IndexKey(NamedTuple):
    """A field's text, or the number in it."""

    field: Field
    numeric: bool


def tests_of(formula: Formula) -> Iterator[Test]:
    """Yield all tests of a formula, from left to right."""
    if isinstance(formula, Test):
        yield formula
    elif isinstance(formula, All | Any):
        for part in formula.parts:
            yield from tests_of(part)


def keys_of(formula: Formula) -> dict[IndexKey, set[Value]]:
    """Return the keys that the formula compares for equality, each with its constants."""
    found: dict[IndexKey, set[Value]] = {}
    for test in tests_of(formula):
        key, constants = _equality(test.predicate)
        if key is not None:
            found.setdefault(key, set()).update(constants)
    return found


def when_equal(formula: Formula, key: IndexKey, value: Value) -> Formula:
    """Return the rest when the key's value is this constant."""
    text = value if isinstance(value, bytes) else repr(value).encode()

    def decide(predicate: Predicate) -> int | None:
        if not _is_about(predicate, key.field):
            return None
        if key.numeric and not isinstance(predicate, CompareNumber | InNumbers | IsNull):
            return None  # 1 and 1.0 are one number and two texts
        return outcome(compile_formula(Test(predicate, FALSE), lambda field: 0).steps[0], [text])

    return _decided(formula, decide)


def when_other(formula: Formula, key: IndexKey) -> Formula:
    """Return the rest when the key has a value that the formula does not name."""

    def decide(predicate: Predicate) -> int | None:
        if isinstance(predicate, CompareText | CompareNumber):
            if _equality(predicate)[0] == key:
                return _outcome_of_unnamed(predicate.relation)
        elif _equality(predicate)[0] == key or (isinstance(predicate, IsNull) and predicate.field == key.field):
            return FALSE
        return None

    return _decided(formula, decide)


def when_none(formula: Formula, key: IndexKey) -> Formula:
    """Return the rest when the message lacks the field, or a numeric key's field holds no number."""

    def decide(predicate: Predicate) -> int | None:
        if key.numeric:
            about = isinstance(predicate, CompareNumber | InNumbers) and predicate.field == key.field
            return UNKNOWN if about else None
        if isinstance(predicate, CompareFields):
            sides = (_field(predicate.left), _field(predicate.right))
            return UNKNOWN if key.field in sides else None
        if predicate.field != key.field:
            return None
        return FALSE << 1 if isinstance(predicate, IsNull) else UNKNOWN

    return _decided(formula, decide)


def _decided(formula: Formula, decide: Callable[[Predicate], int | None]) -> Formula:
    """Return the formula with known outcomes put in. Parts after a decision are skipped."""
    if isinstance(formula, bool):
        return formula
    if isinstance(formula, Test):
        known = decide(formula.predicate)
        return formula if known is None else bool(known & formula.mask)
    ends = isinstance(formula, Any)
    parts: list[Formula] = []
    for part in formula.parts:
        left = _decided(part, decide)
        if left is ends:
            return ends
        parts.append(left)
    return any_of(parts) if ends else all_of(parts)


def _equality(predicate: Predicate) -> tuple[IndexKey | None, tuple[Value, ...]]:
    match predicate:
        case CompareText(field, Relation.EQUAL | Relation.NOT_EQUAL, text):
            return IndexKey(field, False), (text.encode(),)
        case InTexts(field, texts):
            return IndexKey(field, False), tuple(text.encode() for text in texts)
        case CompareNumber(field, Relation.EQUAL | Relation.NOT_EQUAL, number):
            return IndexKey(field, True), (number,)
        case InNumbers(field, numbers):
            return IndexKey(field, True), numbers
    return None, ()


def _outcome_of_unnamed(relation: int) -> int:
    return FALSE if relation == Relation.EQUAL else FALSE << 1


def _is_about(predicate: Predicate, field: Field) -> bool:
    return not isinstance(predicate, CompareFields) and predicate.field == field


def _field(operand: Field | Negated) -> Field:
    return operand.field if isinstance(operand, Negated) else operand
