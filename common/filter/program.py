"""Program of a formula: a sequence of tests, each with the next step for both outcomes.

A program is data: both evaluators run the same one. Texts are UTF-8 bytes, patterns are compiled, operands are slots.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from common.filter.formula import All, Formula, Test
from common.filter.nodes import (
    CompareFields,
    CompareNumber,
    CompareText,
    Field,
    Find,
    InNumbers,
    InTexts,
    IsNull,
    IsTrue,
    Like,
    Negated,
    Operand,
    Predicate,
    Relation,
    TextSearch,
)  # fmt: skip
from common.filter.numbers import Number
from common.filter.patterns import compile_pattern

PASS, DROP = -1, -2
"""Where a program ends: hand the message out, or pass it over."""


class Op(IntEnum):
    """Predicates. All but IS_NULL are UNKNOWN when a slot is empty."""

    TEXT = 0  # slot against one text
    NUMBER = 1
    TEXTS = 2  # slot in a list in order
    NUMBERS = 3
    FIELD_TEXTS = 4  # slot against slot
    FIELD_NUMBERS = 5
    TRUE = 6
    IS_NULL = 7
    CONTAINS = 8
    STARTSWITH = 9
    ENDSWITH = 10
    LIKE = 11


class FilterStep(NamedTuple):
    """One test.

    Attributes:
        relation: bits of nodes.Relation, for the comparisons.
        mask: outcomes that make it hold, bits of formula.
        other, signs: the second slot, and which of the two is negated (bits 1 and 2), for FIELD_NUMBERS.
        constants: what it compares with.
    """

    op: Op
    slot: int
    relation: int
    mask: int
    other: int
    signs: int
    constants: tuple[bytes | Number, ...]
    holds: int
    fails: int


class FilterProgram(NamedTuple):
    """`steps` begin at `start`, which is PASS or DROP when there is nothing to test."""

    steps: tuple[FilterStep, ...]
    start: int


class FieldSlots:
    """Numbers for fields, in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[Field, int] = {}

    def __call__(self, field: Field) -> int:
        return self._numbers.setdefault(field, len(self._numbers))

    @property
    def fields(self) -> tuple[Field, ...]:
        """By number."""
        return tuple(self._numbers)


def compile_formula(formula: Formula, slots: Callable[[Field], int]) -> FilterProgram:
    """Lay the formula out from its end to its start, so that every target is known when a test is written."""
    backwards: list[FilterStep] = []

    def lay(part: Formula, holds: int, fails: int) -> int:
        """Targets count from the end here; the answer is where the part begins."""
        if isinstance(part, bool):
            return holds if part else fails
        if isinstance(part, Test):
            op, slot, relation, other, signs, constants = _meaning(part.predicate, slots)
            backwards.append(FilterStep(op, slot, relation, part.mask, other, signs, constants, holds, fails))
            return len(backwards) - 1
        for inner in reversed(part.parts):
            if isinstance(part, All):
                holds = lay(inner, holds, fails)
            else:
                fails = lay(inner, holds, fails)
        return holds if isinstance(part, All) else fails

    start = lay(formula, PASS, DROP)
    last = len(backwards) - 1

    def turned(target: int) -> int:
        return target if target < 0 else last - target

    steps = tuple(
        step._replace(holds=turned(step.holds), fails=turned(step.fails)) for step in reversed(backwards)
    )  # fmt: skip
    return FilterProgram(steps, turned(start))


Meaning = tuple[Op, int, int, int, int, tuple[bytes | Number, ...]]
_SEARCH = {TextSearch.CONTAINS: Op.CONTAINS, TextSearch.STARTSWITH: Op.STARTSWITH, TextSearch.ENDSWITH: Op.ENDSWITH}


def _meaning(predicate: Predicate, slots: Callable[[Field], int]) -> Meaning:
    if isinstance(predicate, CompareFields):
        left, right = _field(predicate.left), _field(predicate.right)
        signs = isinstance(predicate.left, Negated) | isinstance(predicate.right, Negated) << 1
        op = Op.FIELD_NUMBERS if predicate.numeric else Op.FIELD_TEXTS
        return op, slots(left), predicate.relation, slots(right), signs, ()
    slot = slots(predicate.field)
    match predicate:
        case CompareText(_, relation, text):
            return Op.TEXT, slot, relation, 0, 0, (text.encode(),)
        case CompareNumber(_, relation, number):
            return Op.NUMBER, slot, relation, 0, 0, (number,)
        case InTexts(_, texts):
            return Op.TEXTS, slot, Relation.EQUAL, 0, 0, tuple(text.encode() for text in texts)
        case InNumbers(_, numbers):
            return Op.NUMBERS, slot, Relation.EQUAL, 0, 0, numbers
        case IsTrue():
            return Op.TRUE, slot, 0, 0, 0, ()
        case IsNull():
            return Op.IS_NULL, slot, 0, 0, 0, ()
        case Find(_, search, needle):
            return _SEARCH[search], slot, 0, 0, 0, (needle.encode(),)
        case Like(_, pattern, escape):
            return Op.LIKE, slot, 0, 0, 0, (compile_pattern(pattern, escape),)


def _field(operand: Operand) -> Field:
    return operand.field if isinstance(operand, Negated) else operand
