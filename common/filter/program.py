"""Program of a formula: a sequence of tests, each with the next step for both outcomes.

A program is data that both evaluators run. Texts are UTF-8 bytes, patterns are compiled, operands are slots.
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
"""Ends of a program: PASS delivers the message, DROP skips it."""


class Op(IntEnum):
    """Predicates. All but IS_NULL are UNKNOWN when a slot is empty."""

    TEXT = 0  # slot compared with one text
    NUMBER = 1
    TEXTS = 2  # slot searched in a sorted list
    NUMBERS = 3
    FIELD_TEXTS = 4  # slot compared with slot
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
        mask: outcomes that satisfy the test, as bits of formula.py.
        other, signs: the second slot; for FIELD_NUMBERS also the negated slots (bit 1: first, bit 2: second).
        constants: the values to compare with.
        holds, fails: the next step when the test is satisfied, and when it is not.
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
    """The steps, and the index of the first one: PASS or DROP when there is nothing to test."""

    steps: tuple[FilterStep, ...]
    start: int


class FieldSlots:
    """Numbers fields in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[Field, int] = {}

    def __call__(self, field: Field) -> int:
        return self._numbers.setdefault(field, len(self._numbers))

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields in the order of their numbers."""
        return tuple(self._numbers)


def compile_formula(formula: Formula, slots: Callable[[Field], int]) -> FilterProgram:
    """Compile a formula. Steps are written from last to first, so that each step's targets are known."""
    backwards: list[FilterStep] = []

    def lay(part: Formula, holds: int, fails: int) -> int:
        """Write the steps of a part and return its first step. Targets count from the end here."""
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
