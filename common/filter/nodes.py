"""What a filter says, as a tree of frozen values. Operands are read from the message, conditions are TRUE, FALSE or UNKNOWN.

Equal filters make equal trees: brackets are gone, chains of AND and OR are one node, comparisons of two literals are a Constant.
"""

from dataclasses import dataclass
from enum import IntEnum

from common.filter.numbers import Number


class FieldSource(IntEnum):
    """Where in a message an operand's text lies."""

    PROPERTY = 0
    TAG = 1
    KEY = 2


class Relation(IntEnum):
    """Which answers of a three-way comparison make it TRUE, as bits: 1 less, 2 equal, 4 greater."""

    LESS = 1
    EQUAL = 2
    LESS_OR_EQUAL = 3
    GREATER = 4
    NOT_EQUAL = 5
    GREATER_OR_EQUAL = 6

    @property
    def mirrored(self) -> "Relation":
        """The same with its sides exchanged."""
        return Relation(self & 2 | (self & 1) << 2 | (self & 4) >> 2)


class Search(IntEnum):
    """Where a needle has to lie."""

    CONTAINS = 0
    STARTSWITH = 1
    ENDSWITH = 2


@dataclass(frozen=True, slots=True)
class Field:
    """A text of the message, or nothing when the message does not have it. `name` is empty unless it is a property's."""

    source: FieldSource
    name: str = ""


@dataclass(frozen=True, slots=True)
class Negated:
    """A field's number with the other sign; nothing when the field holds no number."""

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
    """By code points. UNKNOWN without the field."""

    field: Field
    relation: Relation
    text: str


@dataclass(frozen=True, slots=True)
class CompareNumber:
    """UNKNOWN when the field holds no number."""

    field: Field
    relation: Relation
    number: Number


@dataclass(frozen=True, slots=True)
class CompareFields:
    """Two operands of one message: = and <> of two fields compare their texts, everything else their numbers."""

    left: Operand
    relation: Relation
    right: Operand

    @property
    def numeric(self) -> bool:
        """Whether it compares numbers."""
        plain = isinstance(self.left, Field) and isinstance(self.right, Field)
        return not (plain and self.relation in (Relation.EQUAL, Relation.NOT_EQUAL))


@dataclass(frozen=True, slots=True)
class IsTrue:
    """The field says true; FALSE when it says false, in any case of letters; UNKNOWN when it says anything else."""

    field: Field


@dataclass(frozen=True, slots=True)
class InTexts:
    """The field is one of these, which are ordered by their UTF-8 bytes and each there once."""

    field: Field
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InNumbers:
    """The field holds one of these numbers, which are ordered and each there once."""

    field: Field
    numbers: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """The message does not have the field."""

    field: Field


@dataclass(frozen=True, slots=True)
class Find:
    """A text at one end of the field, or anywhere in it."""

    field: Field
    search: Search
    needle: str


@dataclass(frozen=True, slots=True)
class Like:
    """The field has the form of the pattern: `%` stands for any text, `_` for one character, both for themselves behind `escape`."""

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
    """The condition is UNKNOWN. It is itself TRUE or FALSE."""

    inner: "Condition"


@dataclass(frozen=True, slots=True)
class Same:
    """Both conditions are TRUE or both are FALSE; UNKNOWN when one of them is."""

    left: "Condition"
    right: "Condition"


Predicate = CompareText | CompareNumber | CompareFields | IsTrue | InTexts | InNumbers | IsNull | Find | Like
Condition = Constant | Predicate | Not | And | Or | IsUnknown | Same
PREDICATES = (CompareText, CompareNumber, CompareFields, IsTrue, InTexts, InNumbers, IsNull, Find, Like)
