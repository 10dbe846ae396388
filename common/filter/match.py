"""Evaluation over a stored message's bytes. The reference of _match.pyx.

A message is scanned once, without decoding, and only the texts that the program needs are kept. A malformed record
passes: other parts report it, and a filter must not hide it.
"""

from typing import Any

from common.filter.formula import FALSE, TRUE, UNKNOWN, Formula
from common.filter.nodes import Field, FieldSource, Relation
from common.filter.numbers import Number, negate, parse_number
from common.filter.patterns import matches
from common.filter.program import PASS, FieldSlots, FilterProgram, FilterStep, Op, compile_formula
from common.wire.cursor import Cursor
from common.wire.faults import WireError

KEY_FIELD, TAG_FIELD, PROPERTIES_FIELD = 3, 4, 5
STRING, MAP = 11, 13

Values = list[bytes | None]


class FieldTable:
    """Assigns a slot to each field, and reads the fields' texts from messages."""

    def __init__(self) -> None:
        self.slots = FieldSlots()
        self._properties: dict[bytes, int] = {}
        self._tag: int | None = None
        self._key: int | None = None

    def slot(self, field: Field) -> int:
        """The field's slot; a new field is assigned the next one."""
        slot = self.slots(field)
        if field.source == FieldSource.TAG:
            self._tag = slot
        elif field.source == FieldSource.KEY:
            self._key = slot
        else:
            self._properties[field.name.encode()] = slot
        return slot

    def read(self, message: bytes) -> Values:
        """The fields' texts by slot. Raises WireError."""
        values: Values = [None] * len(self.slots.fields)
        cursor = Cursor(message)
        properties_at = None
        while True:
            kind, field_id = cursor.field()
            if kind == 0:
                break
            if kind == STRING and field_id in (KEY_FIELD, TAG_FIELD):
                slot = self._key if field_id == KEY_FIELD else self._tag
                text = cursor.slice(*cursor.string())
                if slot is not None:
                    values[slot] = text
                continue
            if kind == MAP and field_id == PROPERTIES_FIELD:
                properties_at = cursor.at
            cursor.skip(kind, 1)
        if properties_at is not None and self._properties:
            cursor.at = properties_at
            self._read_properties(cursor, values)
        return values

    def _read_properties(self, cursor: Cursor, values: Values) -> None:
        keys, texts, count = cursor.map()
        if (keys, texts) != (STRING, STRING):
            return
        for _ in range(count):
            slot = self._properties.get(cursor.slice(*cursor.string()))
            text = cursor.string()
            if slot is not None:
                values[slot] = cursor.slice(*text)


class Code:
    """A program that can be run on the values of a field table."""

    def __init__(self, program: FilterProgram) -> None:
        self.steps, self.start = program

    def run(self, values: Values) -> bool:
        """Whether the values satisfy the program."""
        at, steps = self.start, self.steps
        while at >= 0:
            step = steps[at]
            at = step.holds if step.mask & outcome(step, values) else step.fails
        return at == PASS


class Filter:
    """One compiled filter. `cost`: maximum number of tests per message, for budgets."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        self._table = FieldTable()
        program = compile_formula(formula, self._table.slot)
        self._code = Code(program)
        self.cost = len(program.steps)

    def passes(self, message: bytes) -> bool:
        """Whether a message, in Thrift's binary encoding, passes the filter."""
        try:
            return self._code.run(self._table.read(message))
        except WireError:
            return True


def outcome(step: FilterStep, values: Values) -> int:
    """Evaluate a step's predicate; returns one of the bits FALSE, TRUE and UNKNOWN."""
    text = values[step.slot]
    if step.op == Op.IS_NULL:
        return TRUE if text is None else FALSE
    if text is None:
        return UNKNOWN
    if step.op in (Op.NUMBER, Op.NUMBERS, Op.FIELD_NUMBERS):
        return _numbers(step, text, values)
    if step.op == Op.TRUE:
        return {b"true": TRUE, b"false": FALSE}.get(text.lower(), UNKNOWN)
    if step.op == Op.FIELD_TEXTS:
        other = values[step.other]
        return UNKNOWN if other is None else _compared(text, other, step.relation)
    return _texts(step, text)


def _texts(step: FilterStep, text: bytes) -> int:
    constant = step.constants[0]
    assert isinstance(constant, bytes)
    match step.op:
        case Op.TEXT:
            return _compared(text, constant, step.relation)
        case Op.TEXTS:
            found = text in step.constants
        case Op.CONTAINS:
            found = constant in text
        case Op.STARTSWITH:
            found = text.startswith(constant)
        case Op.ENDSWITH:
            found = text.endswith(constant)
        case _:
            found = matches(text, constant)
    return TRUE if found else FALSE


def _numbers(step: FilterStep, text: bytes, values: Values) -> int:
    number = parse_number(text)
    if number is None:
        return UNKNOWN
    if step.op == Op.NUMBERS:
        return TRUE if number in step.constants else FALSE
    other: Number | None
    if step.op == Op.NUMBER:
        other = step.constants[0]  # type: ignore[assignment]
    else:
        text = values[step.other]  # type: ignore[assignment]
        other = None if text is None else parse_number(text)
        if other is None:
            return UNKNOWN
        number = negate(number) if step.signs & 1 else number
        other = negate(other) if step.signs & 2 else other
    return _compared(number, other, step.relation)


def _compared(left: Any, right: Any, relation: int) -> int:
    side = Relation.LESS if left < right else Relation.EQUAL if left == right else Relation.GREATER
    return TRUE if relation & side else FALSE
