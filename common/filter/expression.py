"""Filter of a subscription: detects its style and parses it.

A prefix `tag:`, `sql:` or `header:` names the style. Without a prefix, TRUE, FALSE or NOT alone is SQL, in any case of
letters; other words, also separated by ||, or a single *, are tags. Any other filter with one of the signs
== != && || ! is in header style. Everything else is SQL.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from common.filter.errors import FilterError
from common.filter.formula import Formula, TooComplex, formula_of
from common.filter.nodes import Condition, Constant, Field, FieldSource, InTexts
from common.filter.parser import parse_header, parse_sql

FILTER_BYTES_MAX = 65_536
STYLES = ("tag", "sql", "header")

_NAMED = re.compile(r"\s*(tag|sql|header):", re.IGNORECASE)
_TAG = r"""[^\s|&=<>!'"()*,]+"""
_TAGS = re.compile(rf"\s*(?:\*|{_TAG}(?:\s*\|\|\s*{_TAG})*)\s*")
_SQL_ALONE = re.compile(r"\s*(?:TRUE|FALSE|NOT)\s*", re.IGNORECASE)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*(?:'|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z)""", re.DOTALL)
_HEADER_SIGN = re.compile(r"==|!|&&|\|\|")


class Expression(NamedTuple):
    """A parsed filter. `text` is as its author wrote it."""

    style: str
    text: str
    condition: Condition
    formula: Formula


@lru_cache(128)
def read_filter(text: str) -> Expression:
    """Parse a filter. Raises FilterError with the position.

    Evaluation of a parsed filter cannot fail, whatever a message contains.
    """
    _check_text(text)
    named = _NAMED.match(text)
    body_at = named.end() if named else 0
    body = text[body_at:]
    style = named[1].lower() if named else _style(body)
    try:
        condition = {"tag": _parse_tags, "sql": parse_sql, "header": parse_header}[style](body)
        formula = formula_of(condition)
    except FilterError as error:
        raise FilterError(error.sentence, text, error.at + body_at) from None
    except TooComplex:
        raise FilterError("too many comparisons of conditions with one another", text, body_at) from None
    return Expression(style, text, condition, formula)


def _check_text(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise FilterError("invalid UTF-8: a character is cut off", text, error.start) from None
    if size > FILTER_BYTES_MAX:
        raise FilterError(f"a filter has at most {FILTER_BYTES_MAX} bytes, this one has {size}", text, 0)
    if not text.strip():
        raise FilterError("a filter is not empty; * takes everything", text, 0)


def _style(text: str) -> str:
    if _SQL_ALONE.fullmatch(text):
        return "sql"
    if _TAGS.fullmatch(text):
        return "tag"
    return "header" if _HEADER_SIGN.search(_QUOTED.sub("", text)) else "sql"


def _parse_tags(text: str) -> Condition:
    if not _TAGS.fullmatch(text):
        wrong = _first_wrong(text)
        raise FilterError("tags are words with || between them, or * for all", text, wrong)
    if text.strip() == "*":
        return Constant(True)
    tags = {tag.strip() for tag in text.split("||")}
    return InTexts(Field(FieldSource.TAG), tuple(sorted(tags, key=lambda tag: tag.encode())))


def _first_wrong(text: str) -> int:
    """The end of the longest prefix that is valid as tags."""
    good = re.match(rf"\s*(?:{_TAG}(?:\s*\|\|\s*{_TAG})*)?\s*(?:\|\|\s*)?", text)
    return good.end() if good else 0
