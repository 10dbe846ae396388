"""Condition of a filter as a tree of frozen values.

Operands are read from the message; conditions are TRUE, FALSE or UNKNOWN. Equal filters have equal trees: there are no
brackets, a chain of AND or OR is one node, and a comparison of two literals is a Constant.
"""

from dataclasses import dataclass
from enum import IntEnum

from common.filter.numbers import Number


class FieldSource(IntEnum):
    """The part of a message that holds an operand's text."""

    PROPERTY = 0
    TAG = 1
    KEY = 2


class Relation(IntEnum):
    """Results of a three-way comparison that make the relation TRUE, as bits: 1 less, 2 equal, 4 greater."""

    LESS = 1
    EQUAL = 2
    LESS_OR_EQUAL = 3
    GREATER = 4
    NOT_EQUAL = 5
    GREATER_OR_EQUAL = 6

    @property
    def mirrored(self) -> "Relation":
        """The relation with left and right side exchanged."""
        return Relation(self & 2 | (self & 1) << 2 | (self & 4) >> 2)


class TextSearch(IntEnum):
    """The position that a needle must have in the text."""

    CONTAINS = 0
    STARTSWITH = 1
    ENDSWITH = 2


@dataclass(frozen=True, slots=True)
class Field:
    """A text of the message; NULL when the message does not have it. `name` is empty for tag and key."""

    source: FieldSource
    name: str = ""


@dataclass(frozen=True, slots=True)
class Negated:
    """A field's number with the opposite sign; NULL when the field holds no number."""

    field: Field


Operand = Field | Negated
Text = str
Literal = Text | int | float | bool


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE, or None for UNKNOWN."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class CompareText:
    """A comparison with a text, by code points. UNKNOWN when the field is missing."""

    field: Field
    relation: Relation
    text: str


@dataclass(frozen=True, slots=True)
class CompareNumber:
    """A comparison with a number. UNKNOWN when the field holds no number."""

    field: Field
    relation: Relation
    number: Number


@dataclass(frozen=True, slots=True)
class CompareFields:
    """A comparison of two operands of one message: = and <> of two fields compare texts, all else compares numbers."""

    left: Operand
    relation: Relation
    right: Operand

    @property
    def numeric(self) -> bool:
        """Whether the comparison is of numbers."""
        plain = isinstance(self.left, Field) and isinstance(self.right, Field)
        return not (plain and self.relation in (Relation.EQUAL, Relation.NOT_EQUAL))


@dataclass(frozen=True, slots=True)
class IsTrue:
    """TRUE when the field's text is `true`, FALSE when it is `false`, ignoring case; UNKNOWN for any other text."""

    field: Field


@dataclass(frozen=True, slots=True)
class InTexts:
    """The field's text is one of `texts`, which are sorted by their UTF-8 bytes and have no duplicates."""

    field: Field
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InNumbers:
    """The field's number is one of `numbers`, which are sorted and have no duplicates."""

    field: Field
    numbers: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """The message does not have the field."""

    field: Field


@dataclass(frozen=True, slots=True)
class Find:
    """The field contains the needle, at its start, at its end or anywhere."""

    field: Field
    search: TextSearch
    needle: str


@dataclass(frozen=True, slots=True)
class Like:
    """The field matches the pattern: `%` is any text, `_` one character; after `escape` both are literal."""

    field: Field
    pattern: str
    escape: str = ""


@dataclass(frozen=True, slots=True)
class Not:
    inner: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class IsUnknown:
    """TRUE when the inner condition is UNKNOWN, else FALSE."""

    inner: "Condition"


@dataclass(frozen=True, slots=True)
class Same:
    """TRUE when both conditions are TRUE or both are FALSE; UNKNOWN when one of them is UNKNOWN."""

    left: "Condition"
    right: "Condition"


Predicate = CompareText | CompareNumber | CompareFields | IsTrue | InTexts | InNumbers | IsNull | Find | Like
Condition = Constant | Predicate | Not | And | Or | IsUnknown | Same
PREDICATES = (CompareText, CompareNumber, CompareFields, IsTrue, InTexts, InNumbers, IsNull, Find, Like)
