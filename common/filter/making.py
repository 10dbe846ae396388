"""Type rules of the parser: comparable types, comparisons of two literals, and a field used as a condition.

Every type error is found here, when the filter is parsed. During evaluation a mismatch of types is UNKNOWN.
"""

from enum import Enum
from typing import Any, NamedTuple

from common.filter import nodes
from common.filter.errors import FilterError
from common.filter.nodes import (
    And,
    CompareFields,
    CompareNumber,
    CompareText,
    Condition,
    Constant,
    Field,
    Find,
    InNumbers,
    InTexts,
    IsNull,
    IsTrue,
    IsUnknown,
    Like,
    Literal,
    Negated,
    Not,
    Or,
    Relation,
    Same,
    TextSearch,
)  # fmt: skip
from common.filter.numbers import Number, negate
from common.filter.patterns import PATTERN_BYTES_MAX, ends_in_escape, is_like
from common.filter.scan import Token


class Null(Enum):
    """The literal NULL."""

    NULL = "NULL"


class Value(NamedTuple):
    """An operand, a literal or a condition, and its position in the text."""

    is_: "Field | Negated | Literal | Null | Condition"
    at: int


def located(condition: Condition, at: int) -> Value:
    return Value(condition, at)


def as_condition(value: Value, text: str) -> Condition:
    """Convert a value to a condition, where the grammar requires one. A field alone is true when its text is `true`."""
    found = value.is_
    if isinstance(found, bool):
        return Constant(found)
    if found is Null.NULL:
        return Constant(None)
    if isinstance(found, Field):
        return IsTrue(found)
    if isinstance(found, str | int | float | Negated):
        raise FilterError(f"expected a condition, found {_what(found)} alone", text, value.at)
    return found  # type: ignore[return-value]


def joined(node: type[And] | type[Or], parts: list[Condition]) -> Condition:
    """Join parts into one And or Or; the parts of nested nodes of the same type are merged into it."""
    flat: list[Condition] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, node) else [part])
    return node(tuple(flat))


def opposite(condition: Condition) -> Condition:
    """Negate a condition; a double NOT cancels."""
    if isinstance(condition, Not):
        return condition.inner
    if isinstance(condition, Constant):
        return condition if condition.value is None else Constant(not condition.value)
    return Not(condition)


def compared(left: Value, relation: Relation, right: Value, text: str) -> Value:
    """The condition `left relation right`, for values of any kind."""
    for value in (left, right):
        if value.is_ is Null.NULL:
            raise FilterError("nothing compares with NULL; write IS NULL or IS NOT NULL", text, value.at)
    if _is_condition(left) or _is_condition(right) or isinstance(left.is_, bool) or isinstance(right.is_, bool):
        return located(_compared_conditions(left, relation, right, text), left.at)
    a, b = left.is_, right.is_
    if isinstance(a, str | int | float) and isinstance(b, str | int | float):
        return located(Constant(_holds(a, relation, b, left, right, text)), left.at)
    if isinstance(a, str | int | float):
        return located(_with_literal(b, relation.mirrored, a, right, left, text), left.at)
    if isinstance(b, str | int | float):
        return located(_with_literal(a, relation, b, left, right, text), left.at)
    return located(CompareFields(a, relation, b), left.at)  # type: ignore[arg-type]


def tested_for_null(value: Value, negated: bool) -> Value:
    found = value.is_
    condition: Condition
    if isinstance(found, Field):
        condition = IsNull(found)
    elif isinstance(found, Negated):
        condition = IsUnknown(CompareFields(found, Relation.EQUAL, found))
    elif _is_condition(value) and not isinstance(found, Constant | IsUnknown | IsNull):
        condition = IsUnknown(found)  # type: ignore[arg-type]
    else:
        condition = Constant(found is Null.NULL or found == Constant(None))
    return located(opposite(condition) if negated else condition, value.at)


def between(value: Value, low: Value, high: Value, text: str, *, negated: bool) -> Condition:
    """BETWEEN, bounds included. Literal bounds in the wrong order match nothing, which is a fault without NOT."""
    for bound in (value, low, high):
        if _is_condition(bound) or isinstance(bound.is_, bool):
            raise FilterError("BETWEEN compares numbers or texts, no conditions", text, bound.at)
    literals = isinstance(low.is_, str | int | float) and isinstance(high.is_, str | int | float)
    ordered = not literals or _holds(low.is_, Relation.LESS_OR_EQUAL, high.is_, low, high, text)
    if not ordered and not negated:
        raise FilterError("nothing lies between these: the first is the greater one", text, low.at)
    ends = [
        compared(value, Relation.GREATER_OR_EQUAL, low, text),
        compared(value, Relation.LESS_OR_EQUAL, high, text),
    ]
    return joined(And, [as_condition(end, text) for end in ends])


def one_of(left: Value, listed: list[Value], text: str) -> Condition:
    """IN, with a list of texts or a list of numbers."""
    kinds = {}
    for value in listed:
        kind = _kind(value.is_)
        if kind not in ("a text", "a number"):
            raise FilterError(f"a list holds texts or numbers, no {kind.split()[-1]}", text, value.at)
        kinds[kind] = value
        if len(kinds) > 1:
            raise FilterError("a list holds texts or numbers, not both", text, value.at)
    values = [value.is_ for value in listed]
    if isinstance(left.is_, str | int | float) and not isinstance(left.is_, bool):
        if _kind(left.is_) not in kinds:
            raise FilterError(f"{_what(left.is_)} is in no such list", text, left.at)
        return Constant(left.is_ in values)
    if isinstance(left.is_, Negated) and "a number" in kinds:
        return InNumbers(left.is_.field, _numbers([negate(number) for number in values]))  # type: ignore[arg-type]
    if not isinstance(left.is_, Field):
        raise FilterError(f"expected a property before IN, found {_what(left.is_)}", text, left.at)
    if "a text" in kinds:
        return InTexts(left.is_, tuple(sorted(set(values), key=lambda each: each.encode())))  # type: ignore[union-attr,arg-type]
    return InNumbers(left.is_, _numbers(values))  # type: ignore[arg-type]


def find(left: Value, search: TextSearch, needle: str, text: str) -> Condition:
    if isinstance(left.is_, str):
        within = {"CONTAINS": left.is_.__contains__, "STARTSWITH": left.is_.startswith, "ENDSWITH": left.is_.endswith}
        return Constant(within[search.name](needle))
    return Find(_text_field(left, search.name, text), search, needle)


def like(left: Value, pattern: Token, escape: Token | None, text: str) -> Condition:
    if escape is not None and len(escape.value) != 1:
        raise FilterError("ESCAPE is one character", text, escape.at)
    char = escape.value if escape else ""
    if len(pattern.value.encode()) > PATTERN_BYTES_MAX:
        raise FilterError(f"a pattern has at most {PATTERN_BYTES_MAX} bytes", text, pattern.at)
    if ends_in_escape(pattern.value, char):
        raise FilterError("the pattern ends with its ESCAPE character", text, pattern.at)
    if isinstance(left.is_, str):
        return Constant(is_like(left.is_, pattern.value, char))
    return Like(_text_field(left, "LIKE", text), pattern.value, char)


def signed(value: Value, minus: bool, text: str) -> Value:
    """Apply a sign, + or -, to a number or a property."""
    found = value.is_
    if isinstance(found, bool) or not isinstance(found, int | float | Field | Negated):
        raise FilterError(f"a sign stands before numbers and properties, not before {_what(found)}", text, value.at)
    if not minus:
        return value
    if isinstance(found, Field):
        return value._replace(is_=Negated(found))
    return value._replace(is_=found.field if isinstance(found, Negated) else negate(found))


def _compared_conditions(left: Value, relation: Relation, right: Value, text: str) -> Condition:
    """= and <> where one side is a condition, TRUE or FALSE: the other side must be one too."""
    if relation not in (Relation.EQUAL, Relation.NOT_EQUAL):
        wrong = left if _is_condition(left) or isinstance(left.is_, bool) else right
        raise FilterError(f"{_what(wrong.is_)} is neither greater nor less than anything", text, wrong.at)
    for value, other in ((left, right), (right, left)):
        if _kind(value.is_) in ("a text", "a number"):
            raise FilterError(f"{_what(value.is_)} never equals {_what(other.is_)}", text, value.at)
    a, b = as_condition(left, text), as_condition(right, text)
    if isinstance(a, Constant):
        a, b = b, a
    same: Condition
    if not isinstance(b, Constant):
        same = Same(a, b)
    elif b.value is None:
        same = b
    else:
        same = a if b.value else opposite(a)
    return same if relation == Relation.EQUAL else opposite(same)


def _with_literal(
    operand: Any, relation: Relation, literal: str | Number, left: Value, right: Value, text: str
) -> Condition:
    if isinstance(literal, str):
        if isinstance(operand, Negated):
            raise FilterError("a number never compares with a text", text, right.at)
        return CompareText(operand, relation, literal)
    if isinstance(operand, Negated):
        return CompareNumber(operand.field, relation.mirrored, negate(literal))
    return CompareNumber(operand, relation, literal)


def _holds(a: Any, relation: Relation, b: Any, left: Value, right: Value, text: str) -> bool:
    if isinstance(a, str) != isinstance(b, str):
        raise FilterError(f"{_what(a)} and {_what(b)} do not compare", text, right.at)
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    return bool(relation & (Relation.LESS if a < b else Relation.EQUAL if a == b else Relation.GREATER))


def _text_field(value: Value, word: str, text: str) -> Field:
    if not isinstance(value.is_, Field):
        raise FilterError(f"expected a property before {word}, found {_what(value.is_)}", text, value.at)
    return value.is_


def _numbers(numbers: list[Number]) -> tuple[Number, ...]:
    return tuple(sorted(set(numbers)))


def _is_condition(value: Value) -> bool:
    return isinstance(value.is_, (Constant, *nodes.PREDICATES, Not, And, Or, IsUnknown, Same))


def _kind(found: object) -> str:
    if isinstance(found, bool):
        return "a boolean"
    if isinstance(found, str):
        return "a text"
    if isinstance(found, int | float):
        return "a number"
    if isinstance(found, Field | Negated):
        return "a property"
    return "NULL" if found is Null.NULL else "a condition"


def _what(found: object) -> str:
    if isinstance(found, str):
        return f"the text {found[:40]!r}"
    if isinstance(found, bool):
        return str(found).upper()
    return f"the number {found}" if isinstance(found, int | float) else _kind(found)
