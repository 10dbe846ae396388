"""Tokens of a filter's text, for both styles: words, texts in quotes, numbers, signs.

SQL style: 'texts' with '' for a quote, "names" of properties that are not plain words, comments as -- and /* */.
Header style: 'texts' and "texts" with \\ before a quote or another \\.
"""

import re
from typing import NamedTuple

from common.filter.errors import FilterError

WORD, NAME, TEXT, NUMBER, SIGN, END = "word", "name", "text", "number", "sign", "end"


class Token(NamedTuple):
    """A token. `value`: the text without quotes and escapes. `at`: its position in the filter."""

    kind: str
    value: str
    at: int


_NUMBER = r"(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_WORD = r"(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)"
SQL = re.compile(
    r"(?P<blank>\s+|--[^\r\n]*|/\*(?:[^*]|\*(?!/))*\*/)"
    rf"|{_NUMBER}[lL]?|{_WORD}"
    r"|'(?P<text>(?:[^']|'')*)'"
    r'|"(?P<name>(?:[^"]|"")+)"'
    r"|(?P<sign><>|<=|>=|[-+=<>(),])"
)
HEADER = re.compile(
    r"(?P<blank>\s+)"
    rf"|{_NUMBER}|{_WORD}"
    r"|'(?P<text>(?:[^'\\]|\\.)*)'"
    r'|"(?P<double>(?:[^"\\]|\\.)*)"'
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[-+<>()!])",
    re.DOTALL,
)
_NOT_SQL = {"==": "=", "!=": "<>", "&&": "AND", "||": "OR", "!": "NOT"}


def scan(text: str, style: re.Pattern[str]) -> list[Token]:
    """All tokens, then one of kind END. Raises FilterError at the first character that starts no token."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = style.match(text, at)
        if found is None:
            raise _strange(text, at, style)
        kind = found.lastgroup or ""
        if kind == NUMBER and re.match(r"[\w$.]", text[found.end() : found.end() + 1]):
            raise FilterError("a number ends in letters", text, found.end())
        if kind != "blank":
            tokens.append(Token(TEXT if kind == "double" else kind, _meaning(kind, found[kind], style), at))
        at = found.end()
    tokens.append(Token(END, "the end", len(text)))
    return tokens


def _meaning(kind: str, raw: str, style: re.Pattern[str]) -> str:
    if kind in (TEXT, "double") and style is HEADER:
        return re.sub(r"\\(.)", r"\1", raw, flags=re.DOTALL)
    if kind == TEXT:
        return raw.replace("''", "'")
    return raw.replace('""', '"') if kind == NAME else raw


def _strange(text: str, at: int, style: re.Pattern[str]) -> FilterError:
    char = text[at]
    if char == "'" or (char == '"' and text[at : at + 2] != '""'):
        return FilterError("this quote is never closed", text, at)
    if char == '"':
        return FilterError("a name in quotes has at least one character", text, at)
    if text.startswith("/*", at):
        return FilterError("this comment is never closed", text, at)
    for other, own in _NOT_SQL.items():
        if style is SQL and text.startswith(other, at):
            return FilterError(f"{other} belongs to the header style; here it is {own}", text, at)
    if style is HEADER and char in "=&|":
        return FilterError(f"{char} alone means nothing here; the signs are == && ||", text, at)
    return FilterError(f"unexpected character {char!r}", text, at)
