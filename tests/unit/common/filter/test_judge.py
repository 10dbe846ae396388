"""SQLite is asked the same questions: three-valued logic, BETWEEN, IN, LIKE, IS NULL, order of texts and of numbers.

A property is a text, and what it is depends on its neighbour; so each is three columns there: the text `a`, the number in it `a_n`, the
truth in it `a_b`, the latter two NULL where it holds none. That reading is made by this test in its own way, the rest is SQLite's.
"""

import re
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.filter.formula import FALSE, TRUE, UNKNOWN, formula_of
from common.filter.match import Filter as Twin
from common.filter.native import NATIVE, Filter
from common.filter.parser import parse_sql
from common.filter.printing import print_condition
from tests.unit.common.filter.stored import stored

FORMS = [Filter, Twin] if NATIVE else [Twin]
NAMES = ("a", "b", "c")
TEXTS = [
    *("", " 2", "1", "2", "10", "-3", "2.5", "1e1", "+2", "02", "2.", "9007199254740993", "-0"),
    *("abc", "abd", "ab%", "a_c", "it's", "true", "FALSE", "Ünï", "€"),
]
NUMBERS = (
    "0x1F",
    "0XfF",
    "007",
    "1",
    "2",
    "10",
    "-3",
    "2.5",
    "9007199254740992",
    "9007199254740993",
    "9007199254740992.0",
    "1e300",
    "0",
)

names = st.sampled_from(NAMES)
texts = st.sampled_from(TEXTS).map(lambda text: "'" + text.replace("'", "''") + "'")
numbers = st.sampled_from(NUMBERS)
relations = st.sampled_from(("=", "<>", "<", "<=", ">", ">="))
negations = st.sampled_from(("", "NOT "))
Pair = tuple[str, str]  # our text, SQLite's


def literal(text: str) -> int | float:
    """The number of a literal; 007 is decimal."""
    if text[:2].lower() == "0x":
        return int(text, 16)
    return float(text) if "." in text or "e" in text else int(text)


def both(ours: str, theirs: str | None = None) -> Pair:
    return f"({ours})", f"({ours if theirs is None else theirs})"


def with_column(form: str, name: str, suffix: str = "") -> Pair:
    return both(form.format(name), form.format(name + suffix))


@st.composite
def predicates(draw) -> Pair:
    name, relation, negation = draw(names), draw(relations), draw(negations)
    match draw(st.integers(0, 11)):
        case 0:
            return with_column(f"{{}} {relation} {draw(texts)}", name)
        case 1:
            return with_column(f"{{}} {relation} {draw(numbers)}", name, "_n")
        case 2:
            return with_column(f"{draw(numbers)} {relation} {{}}", name, "_n")
        case 3:
            low, high = draw(numbers), draw(numbers)
            if not negation:
                low, high = sorted((low, high), key=literal)
            return with_column(f"{{}} {negation}BETWEEN {low} AND {high}", name, "_n")
        case 4:
            other, low = draw(names), draw(numbers)
            return both(
                f"{name} {negation}BETWEEN {low} AND {other}", f"{name}_n {negation}BETWEEN {low} AND {other}_n"
            )
        case 5:
            return with_column(f"{{}} {negation}IN ({', '.join(draw(st.lists(texts, min_size=1, max_size=6)))})", name)
        case 6:
            return with_column(
                f"{{}} {negation}IN ({', '.join(draw(st.lists(numbers, min_size=1, max_size=6)))})", name, "_n"
            )
        case 7:
            return with_column(f"{{}} IS {negation}NULL", name)
        case 8:
            pattern = draw(st.text("ab%_1€!", max_size=5).filter(lambda text: not re.search(r"(?<!!)(!!)*!$", text)))
            return with_column(f"{{}} {negation}LIKE '{pattern}' ESCAPE '!'", name)
        case 9:
            needle = draw(texts)
            start = f"substr({name}, 1, length({needle})) = {needle}"
            end = f"substr({name}, length({name}) - length({needle}) + 1) = {needle} AND length({name}) >= length({needle})"
            word, theirs = draw(
                st.sampled_from(
                    (("CONTAINS", f"instr({name}, {needle}) > 0"), ("STARTSWITH", start), ("ENDSWITH", end))
                )
            )
            return both(f"{name} {negation}{word} {needle}", f"{negation} ({theirs})")
        case 10:
            return draw(
                st.sampled_from(
                    (
                        both(f"NOT NOT {name}", f"{name}_b"),
                        both(f"{name} = FALSE", f"NOT {name}_b"),
                        both("NULL AND TRUE"),
                        both("TRUE"),
                    )
                )
            )
        case _:
            other = draw(names)
            suffix = "" if relation in ("=", "<>") else "_n"
            return draw(st.sampled_from((
                both(f"{name} {relation} {other}", f"{name}{suffix} {relation} {other}{suffix}"),
                both(f"-{name} {relation} {other}", f"-{name}_n {relation} {other}_n"),
            )))  # fmt: skip


def combined(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def joined(word: str):
        def join(pairs: list[Pair]) -> Pair:
            return tuple("(" + word.join(each) + ")" for each in zip(*pairs, strict=True))  # type: ignore[return-value]

        return st.lists(inner, min_size=2, max_size=4).map(join)

    return st.one_of(
        joined(" AND "),
        joined(" OR "),
        joined(" = "),
        inner.map(lambda pair: (f"(NOT {pair[0]})", f"(NOT {pair[1]})")),
        inner.map(lambda pair: (f"({pair[0]} IS NULL)", f"({pair[1]} IS NULL)")),
    )


expressions = st.recursive(predicates(), combined, max_leaves=12)
rows = st.fixed_dictionaries({name: st.none() | st.sampled_from(TEXTS) for name in NAMES})


def number_in(text: str | None):
    if text is None or not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        return None
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)


def truth_in(text: str | None):
    return {"true": 1, "false": 0}.get(text.lower()) if text is not None else None


@pytest.fixture(scope="module")
def sqlite():
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    return connection


def judged(sqlite, expression: str, row: dict) -> int:
    columns = {}
    for name, text in row.items():
        columns |= {name: text, f"{name}_n": number_in(text), f"{name}_b": truth_in(text)}
    values = ", ".join(f"? AS {column}" for column in columns)
    (answer,) = sqlite.execute(f"SELECT {expression} FROM (SELECT {values})", list(columns.values())).fetchone()
    return UNKNOWN if answer is None else TRUE if answer else FALSE


@settings(max_examples=1500, deadline=None)
@given(expressions, st.lists(rows, min_size=1, max_size=4))
def test_every_outcome_is_sqlites(sqlite, expression, given_rows):
    ours, theirs = expression
    condition = parse_sql(ours)
    forms = [[(mask, form(formula_of(condition, mask))) for mask in (TRUE, FALSE, UNKNOWN)] for form in FORMS]
    for row in given_rows:
        wanted = judged(sqlite, theirs, row)
        message = stored({name: text for name, text in row.items() if text is not None})
        for filters in forms:
            assert [mask for mask, each in filters if each.passes(message)] == [wanted]


@settings(max_examples=400, deadline=None)
@given(expressions)
def test_a_printed_filter_is_read_as_the_same(expression):
    condition = parse_sql(expression[0])
    assert parse_sql(print_condition(condition)) == condition


@settings(max_examples=400, deadline=None)
@given(expressions, rows, st.integers(1, 6))
def test_any_set_of_outcomes_may_be_asked_for(expression, row, mask):
    condition = parse_sql(expression[0])
    message = stored({name: text for name, text in row.items() if text is not None})
    single = [one for one in (TRUE, FALSE, UNKNOWN) if Twin(formula_of(condition, one)).passes(message)]
    assert Twin(formula_of(condition, mask)).passes(message) == bool(single[0] & mask)
