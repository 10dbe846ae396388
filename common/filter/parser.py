"""Parser of tokens into a condition, by recursive descent.

The grammar extends RocketMQ's; docs/filters.md lists the differences.

condition   = conjunction { OR conjunction }
conjunction = negation { AND negation }
negation    = NOT negation | equality
equality    = comparison { (= | <>) comparison | IS [NOT] NULL }
comparison  = value { (< | <= | > | >=) value | [NOT] predicate }
predicate   = BETWEEN … | IN … | LIKE … | CONTAINS … | STARTSWITH … | ENDSWITH …
value       = (+ | -) value | 'text' | number | TRUE | FALSE | NULL | name | ( condition )
"""

import re
from collections.abc import Callable

from common.filter import making, scan
from common.filter.errors import FilterError
from common.filter.making import Null, Value
from common.filter.nodes import And, Condition, Field, FieldSource, Or, Relation, TextSearch
from common.filter.numbers import INTEGER_MAX, INTEGER_MIN
from common.filter.scan import END, NAME, NUMBER, SIGN, TEXT, WORD, Token

DEPTH_MAX = 50
"""Maximum nesting of brackets, NOTs and signs. Each level costs frames of Python's stack, also in the compiler."""
CHAIN_MAX = 4
"""Maximum number of comparisons in a row without brackets, as in a = b = TRUE."""
LIST_MAX = 10_000

_ORDER = {"<": Relation.LESS, "<=": Relation.LESS_OR_EQUAL, ">": Relation.GREATER, ">=": Relation.GREATER_OR_EQUAL}
_EQUALITY = {"=": Relation.EQUAL, "<>": Relation.NOT_EQUAL, "==": Relation.EQUAL, "!=": Relation.NOT_EQUAL}
RESERVED = frozenset(
    (
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "FALSE",
        "NULL",
        "IS",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
        "LIKE",
        "ESCAPE",
    )
)
_HEADER_WORDS = frozenset(["true", "false", "nil", "null"])
_HEADER_SIGNS = {"&&": "AND", "||": "OR", "!": "NOT"}
_FIELDS = {"TAGS": Field(FieldSource.TAG), "KEYS": Field(FieldSource.KEY)}


def parse_sql(text: str) -> Condition:
    """Parse a filter in SQL style. Raises FilterError."""
    return _Parser(text, scan.scan(text, scan.SQL), RESERVED, str.upper).whole()


def parse_header(text: str) -> Condition:
    """Parse a filter in header style: == != && || ! and nil. Raises FilterError."""
    return _Parser(text, scan.scan(text, scan.HEADER), _HEADER_WORDS, str).whole()


class _Parser:
    """One run of the parser. `_word` is the present token if it is a keyword or a sign, else ""."""

    def __init__(self, text: str, tokens: list[Token], words: frozenset[str], fold: Callable[[str], str]) -> None:
        self._text, self._tokens = text, tokens
        self._words, self._fold = words, fold
        self._at = self._depth = 0

    def whole(self) -> Condition:
        found = self._condition()
        if self._token.kind != END:
            raise self._wrong("the filter should end here, or go on with AND or OR")
        return making.as_condition(found, self._text)

    # -- tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    @property
    def _word(self) -> str:
        kind, value, _ = self._token
        if kind == SIGN:
            return _HEADER_SIGNS.get(value, value)
        folded = self._fold(value)
        return folded if kind == WORD and folded in self._words else ""

    def _next(self) -> Token:
        token = self._token
        self._at += 1
        return token

    def _take(self, word: str) -> bool:
        if self._word != word:
            return False
        self._at += 1
        return True

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise self._wrong(f"expected {word}")

    def _wrong(self, sentence: str) -> FilterError:
        kind, value, at = self._token
        found = value if kind in (END, SIGN) else f"{value[:40]!r}"
        return FilterError(f"{sentence}, found {found}", self._text, at)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterError(f"nested more than {DEPTH_MAX} deep", self._text, self._token.at)

    # -- conditions

    def _condition(self) -> Value:
        return self._chain("OR", Or, lambda: self._chain("AND", And, self._negation))

    def _chain(self, word: str, node: type[And] | type[Or], inner: Callable[[], Value]) -> Value:
        first = inner()
        if self._word != word:
            return first
        parts = [making.as_condition(first, self._text)]
        while self._take(word):
            parts.append(making.as_condition(inner(), self._text))
        return making.located(making.joined(node, parts), first.at)

    def _negation(self) -> Value:
        at = self._token.at
        if not self._take("NOT"):
            return self._equality()
        self._deeper()
        inner = self._negation()
        self._depth -= 1
        return making.located(making.opposite(making.as_condition(inner, self._text)), at)

    def _equality(self) -> Value:
        left = self._comparison()
        for _ in range(CHAIN_MAX):
            word = self._word
            relation = _EQUALITY.get(word)
            if relation is not None:
                self._at += 1
                right = self._comparison()
                if right.is_ is Null.NULL and word in ("==", "!="):
                    left = making.tested_for_null(left, relation == Relation.NOT_EQUAL)
                else:
                    left = making.compared(left, relation, right, self._text)
            elif self._take("IS"):
                negated = self._take("NOT")
                self._need("NULL")
                left = making.tested_for_null(left, negated)
            else:
                return left
        return self._end_of_row(left, self._word in (*_EQUALITY, "IS"))

    def _comparison(self) -> Value:
        left = self._value()
        for _ in range(CHAIN_MAX):
            relation = _ORDER.get(self._word)
            if relation is not None:
                self._at += 1
                left = making.compared(left, relation, self._value(), self._text)
                continue
            before = self._at
            negated = self._take("NOT")
            found = self._predicate(left, negated)
            if found is None and negated:
                self._at = before + 1
                raise self._wrong("expected BETWEEN, IN, LIKE, CONTAINS, STARTSWITH or ENDSWITH after NOT")
            if found is None:
                return left
            left = making.located(making.opposite(found) if negated else found, left.at)
        return self._end_of_row(left, self._word in _ORDER)

    def _end_of_row(self, left: Value, goes_on: bool) -> Value:
        if goes_on:
            raise self._wrong(f"more than {CHAIN_MAX} comparisons in a row need brackets")
        return left

    def _predicate(self, left: Value, negated: bool) -> Condition | None:
        """The predicate after a value, without its NOT; None when there is none."""
        word = self._word
        if word == "BETWEEN":
            self._at += 1
            low = self._value()
            self._need("AND")
            return making.between(left, low, self._value(), self._text, negated=negated)
        if word == "IN":
            self._at += 1
            return making.one_of(left, self._list(), self._text)
        if word == "LIKE":
            self._at += 1
            pattern = self._string("a pattern in single quotes")
            escape = self._string("one character in single quotes") if self._take("ESCAPE") else None
            return making.like(left, pattern, escape, self._text)
        if word in TextSearch.__members__:
            self._at += 1
            return making.find(left, TextSearch[word], self._string("a text in single quotes").value, self._text)
        return None

    def _list(self) -> list[Value]:
        self._need("(")
        found = [self._value()]
        while self._take(","):
            found.append(self._value())
            if len(found) > LIST_MAX:
                raise self._wrong(f"a list has at most {LIST_MAX} values")
        self._need(")")
        return found

    def _string(self, what: str) -> Token:
        if self._token.kind != TEXT:
            raise self._wrong(f"expected {what}")
        return self._next()

    # -- values

    def _value(self) -> Value:
        kind, value, at = self._token
        word = self._word
        if word in ("(", "+", "-"):
            return self._nested(word, at)
        if kind == TEXT:
            found: object = value
        elif kind == NUMBER:
            found = self._number("")
        elif word:
            found = self._literal_word(word)
        elif kind == WORD:
            found = _FIELDS.get(value) or Field(FieldSource.PROPERTY, value)
        elif kind == NAME:
            found = Field(FieldSource.PROPERTY, value)
        else:
            raise self._wrong("expected a property, a value or (")
        self._at += 1
        return Value(found, at)  # type: ignore[arg-type]

    def _nested(self, word: str, at: int) -> Value:
        self._at += 1
        self._deeper()
        if word == "(":
            found = self._condition()
            self._need(")")
        elif word == "-" and self._token.kind == NUMBER:
            found = Value(self._number("-"), at)
            self._at += 1
        else:
            found = making.signed(self._value(), word == "-", self._text)
        self._depth -= 1
        return found._replace(at=at)

    def _literal_word(self, word: str) -> object:
        known = {"TRUE": True, "FALSE": False, "NULL": Null.NULL, "NIL": Null.NULL}.get(word.upper())
        if known is None:
            raise self._wrong("expected a property, a value or (")
        return known

    def _number(self, sign: str) -> int | float:
        digits, at = self._token.value, self._token.at
        if re.fullmatch("[0-9]+|0[xX][0-9a-fA-F]+", digits):
            # int() takes quadratic time, so longer texts, which exceed 64 bits anyway, are not converted.
            base = 16 if digits[:2] in ("0x", "0X") else 10
            short = len(digits.lstrip("0xX")) <= 20
            whole = int(sign + digits, base) if short else INTEGER_MAX + 1
            if not INTEGER_MIN <= whole <= INTEGER_MAX:
                raise FilterError("a whole number beyond 64 bits", self._text, at)
            return whole
        number = float(sign + digits)
        if number in (float("inf"), float("-inf")):
            raise FilterError("a number beyond the range of a double", self._text, at)
        return number
