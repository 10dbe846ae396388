"""Prints a condition as a filter in SQL style. Parsing the filter again gives an equal condition."""

import re

from common.filter.nodes import (
    And,
    CompareFields,
    CompareNumber,
    CompareText,
    Condition,
    Constant,
    Field,
    FieldSource,
    Find,
    InNumbers,
    InTexts,
    IsNull,
    IsTrue,
    IsUnknown,
    Like,
    Negated,
    Not,
    Operand,
    Or,
    Predicate,
    Relation,
    Same,
)  # fmt: skip
from common.filter.parser import RESERVED

_SIGNS = {
    Relation.LESS: "<",
    Relation.LESS_OR_EQUAL: "<=",
    Relation.EQUAL: "=",
    Relation.NOT_EQUAL: "<>",
    Relation.GREATER_OR_EQUAL: ">=",
    Relation.GREATER: ">",
}
_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def print_condition(condition: Condition) -> str:
    """Print a condition. NOT puts its part in brackets; AND and OR do so with composed parts."""
    match condition:
        case Constant(value):
            return "NULL" if value is None else str(value).upper()
        case Not(inner):
            return f"NOT ({print_condition(inner)})"
        case And(parts):
            return " AND ".join(map(_part, parts))
        case Or(parts):
            return " OR ".join(map(_part, parts))
        case IsUnknown(inner):
            return f"({print_condition(inner)}) IS NULL"
        case Same(left, right):
            return f"({print_condition(left)}) = ({print_condition(right)})"
    return _predicate(condition)


def _part(condition: Condition) -> str:
    printed = print_condition(condition)
    return f"({printed})" if isinstance(condition, And | Or | Not | IsUnknown | Same) else printed


def _predicate(predicate: Predicate) -> str:
    if isinstance(predicate, CompareFields):
        return f"{_operand(predicate.left)} {_SIGNS[predicate.relation]} {_operand(predicate.right)}"
    name = _operand(predicate.field)
    match predicate:
        case CompareText(_, relation, text):
            return f"{name} {_SIGNS[relation]} {_text(text)}"
        case CompareNumber(_, relation, number):
            return f"{name} {_SIGNS[relation]} {number!r}"
        case InTexts(_, texts):
            return f"{name} IN ({', '.join(map(_text, texts))})"
        case InNumbers(_, numbers):
            return f"{name} IN ({', '.join(map(repr, numbers))})"
        case IsTrue():
            return f"{name} = TRUE"
        case IsNull():
            return f"{name} IS NULL"
        case Find(_, search, needle):
            return f"{name} {search.name} {_text(needle)}"
        case Like(_, pattern, escape):
            return f"{name} LIKE {_text(pattern)}" + (f" ESCAPE {_text(escape)}" if escape else "")


def _operand(operand: Operand) -> str:
    if isinstance(operand, Negated):
        return f"- {_operand(operand.field)}"
    return _name(operand)


def _name(field: Field) -> str:
    if field.source != FieldSource.PROPERTY:
        return "TAGS" if field.source == FieldSource.TAG else "KEYS"
    plain = _PLAIN.fullmatch(field.name) and field.name.upper() not in RESERVED and field.name not in ("TAGS", "KEYS")
    return field.name if plain else '"' + field.name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
