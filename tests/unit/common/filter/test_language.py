"""What filters mean and how wrong ones are answered."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.filter.errors import FilterError
from common.filter.expression import FILTER_BYTES_MAX, read_filter
from common.filter.match import Filter as Twin
from common.filter.native import Filter
from common.filter.parser import parse_sql
from common.filter.printing import print_condition
from tests.unit.common.filter.stored import stored


def takes(text: str, properties: dict[str, str] | None = None, **fields) -> bool:
    return Filter(read_filter(text).formula).passes(stored(properties, **fields))


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("*", "tag"),
        ("paid", "tag"),
        ("paid || refunded||späť", "tag"),
        ("a = 1", "sql"),
        ("a = 'x || y'", "sql"),
        ("a = 'x == y'", "sql"),
        ("a==1", "header"),
        ("a && b", "header"),
        ("!a", "header"),
        ("SQL: paid", "sql"),
        ("header:paid", "header"),
        ("TRUE", "sql"),
        (" false ", "sql"),
        ("tag:TRUE", "tag"),
        ("TRUE || paid", "tag"),
        ("TRUER", "tag"),
        ("tag: a||b", "tag"),
    ],
)
def test_the_style_is_seen_from_the_text_or_named(text, style):
    assert read_filter(text).style == style


def test_tags_take_the_messages_that_have_one_of_them():
    assert takes("a || b", tag="b")
    assert not takes("a || b", tag="c")
    assert not takes("a || b")
    assert takes("*")


@pytest.mark.parametrize("form", [Filter, Twin])
def test_true_and_false_alone_take_everything_and_nothing(form):
    for text, wanted in (("TRUE", True), ("true", True), ("FALSE", False), ("sql:TRUE", True), ("tag:TRUE", False)):
        assert form(read_filter(text).formula).passes(stored({}, tag="paid")) == wanted
    assert form(read_filter("tag:TRUE").formula).passes(stored({}, tag="TRUE"))


@pytest.mark.parametrize("style", ["sql", "header"])
def test_a_literal_may_be_hexadecimal_and_leading_zeros_mean_nothing(style):
    equal = "=" if style == "sql" else "=="
    for literal, number in (("0x1F", 31), ("0XffL"[: 5 if style == "sql" else 4], 255), ("007", 7), ("-0x8", -8)):
        assert takes(f"{style}: a {equal} {literal}", {"a": str(number)})
    assert takes("a = 0x7fffffffffffffff", {"a": str((1 << 63) - 1)})
    assert not takes("a = 31", {"a": "0x1F"})


def test_the_header_style_is_the_same_language():
    text = "messageType=='a' && buyerId==1 || !(region != \"eu\") || x == nil && y >= -2.5"
    assert takes(text, {"messageType": "a", "buyerId": "1", "x": ""})
    assert not takes(text, {"messageType": "a", "buyerId": "2", "x": ""})
    assert takes(text, {"region": "eu", "x": ""})
    assert takes(text, {"y": "-2.5"})
    assert takes(r"a == 'it\'s \\'", {"a": "it's \\"})


def test_names_in_double_quotes_are_properties():
    assert takes("\"x-trace.id\" = 'a'", {"x-trace.id": "a"})
    assert takes("\"TAGS\" = 'a' AND TAGS = 'b' AND KEYS = 'k'", {"TAGS": "a"}, tag="b", key="k")
    assert takes('"a""b" = 1', {'a"b': "1"})


def test_like_counts_characters_and_not_bytes():
    assert takes("a LIKE '_ü_%'", {"a": "ßü€ and more"})
    assert not takes("a LIKE '_ü_'", {"a": "ßü€ and more"})
    assert takes(r"a LIKE '100\%%' ESCAPE '\'", {"a": "100% sure"})
    assert not takes(r"a LIKE '100\%%' ESCAPE '\'", {"a": "1000"})
    assert not takes("a LIKE 'X%'", {"a": "x"})


@pytest.mark.parametrize(
    ("text", "sentence", "caret"),
    [
        ("a and between 2", "expected a property, a value or (, found 'between'", 6),
        ("a = ", "expected a property, a value or (, found the end", 4),
        ("a b", "the filter should end here, or go on with AND or OR, found 'b'", 2),
        ("a = 'x", "this quote is never closed", 4),
        ("a = 1 /* x", "this comment is never closed", 6),
        ("'a' > 3", "the text 'a' and the number 3 do not compare", 6),
        ("a IN ('x', 3)", "a list holds texts or numbers, not both", 11),
        ("a IN (b)", "a list holds texts or numbers, no property", 6),
        ("3 IN ('x')", "the number 3 is in no such list", 0),
        ("a BETWEEN 10 AND 0", "nothing lies between these: the first is the greater one", 10),
        ("a = NULL", "nothing compares with NULL; write IS NULL or IS NOT NULL", 4),
        ("a < TRUE", "TRUE is neither greater nor less than anything", 4),
        ("(a = 1) = 'x'", "the text 'x' never equals a condition", 10),
        ("a AND 'x'", "expected a condition, found the text 'x' alone", 6),
        ("-'x' = 1", "a sign stands before numbers and properties, not before the text 'x'", 1),
        ("-a = 'x'", "a number never compares with a text", 5),
        ("a = 3abc", "a number ends in letters", 5),
        ("a = 99999999999999999999", "a whole number beyond 64 bits", 4),
        ("a = 0x8000000000000000", "a whole number beyond 64 bits", 4),
        ("a = 0xg", "a number ends in letters", 5),
        ("NOT", "expected a property, a value or (, found the end", 3),
        ("NOT (a BETWEEN 10 AND 0)", "nothing lies between these: the first is the greater one", 15),
        ("a = 1e999", "a number beyond the range of a double", 4),
        ("a LIKE 'x' ESCAPE 'ab'", "ESCAPE is one character", 18),
        (r"a LIKE 'x\' ESCAPE '\'", "the pattern ends with its ESCAPE character", 7),
        ("a NOT 3", "expected BETWEEN, IN, LIKE, CONTAINS, STARTSWITH or ENDSWITH after NOT, found '3'", 6),
        ("a IS 3", "expected NULL, found '3'", 5),
        ("sql: a == 3", "expected a property, a value or (, found =", 8),
        ("tag: a | b", "tags are words with || between them, or * for all", 7),
        ("header: a = 1", "= alone means nothing here; the signs are == && ||", 10),
        ("a = #", "unexpected character '#'", 4),
        ("a = b = c = d = e = f", "more than 4 comparisons in a row need brackets, found =", 18),
        (" ", "a filter is not empty; * takes everything", 0),
        ("a = '\ud800'", "invalid UTF-8: a character is cut off", 5),
    ],
)
def test_a_wrong_filter_is_refused_with_a_caret_under_the_place(text, sentence, caret):
    with pytest.raises(FilterError) as refused:
        read_filter(text)
    assert refused.value.sentence == sentence
    assert refused.value.at == caret
    assert refused.value.pointer().splitlines()[1] == " " * caret + "^"


def test_the_caret_stays_on_the_screen_of_a_long_filter():
    text = "a = 1 OR\t" * 500 + "b > #" + " OR a = 1" * 500
    with pytest.raises(FilterError) as refused:
        read_filter(text)
    shown, caret = refused.value.pointer().splitlines()
    assert shown[len(caret) - 1] == "#" and len(shown) == 100 and "\t" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1000 + "a = 1" + ")" * 1000,
        "NOT " * 1000 + "a = 1",
        "- " * 1000 + "a = 1",
        "!" * 1000 + "a == 1",
        "sql: " + "(" * (FILTER_BYTES_MAX - 5),
        "a" * (FILTER_BYTES_MAX + 1),
        "a = '" + "\\'" * 30_000,
        '"' * 60_001,
        "a = " + "9" * 60_000,
        "a = 0x" + "f" * 60_000,
        "a = " + "1" * 30_000 + "." + "1" * 30_000 + "e9",
        "/*" * 30_000,
        "a | " * 15_000,
        "a = b " + "= b IS NULL " * 5_000,
        "((((((((((((((a=b)=(a=b))=(a=b))=(a=b))=(a=b))=(a=b))=(a=b))=(a=b))=(a=b))=(a=b))=(a=b))=(a=b))=(a=b))=(a=b))=(a=b)",
    ],
    ids=range(15),
)
def test_bounds_are_held_with_a_sentence_and_in_short_time(text):
    began = time.process_time()
    with pytest.raises(FilterError):
        read_filter(text)
    assert time.process_time() - began < 2


def test_a_filter_of_the_greatest_size_and_depth_is_read_and_runs():
    long = "".join(f"a={number} or " for number in range(6_300)) + "b=2"
    assert len(long) > 60_000
    assert takes(long, {"a": "-1", "b": "2"})
    assert takes("(" * 48 + "not (a = 1)" + ")" * 48, {"a": "2"})
    listed = "a in (" + ",".join(f"'{n}'" for n in range(8_000)) + ")"
    assert takes(listed, {"a": "7999"}) and not takes(listed, {"a": "8000"})


@given(st.text(max_size=60) | st.text("ab'\"=<>!&|()-+.,0123 *%_ERNOTILKA/\\", max_size=60))
def test_any_text_is_a_filter_or_a_filter_error(text):
    try:
        read = read_filter(text)
    except FilterError as error:
        assert 0 <= error.at <= len(text) and error.pointer().endswith("^")
        return
    Filter(read.formula).passes(stored({"a": "1"}))


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND (b <> 'it''s' OR NOT (c IN (-1, 2.5, 1e300))) AND d LIKE 'x!%' ESCAPE '!'",
        "(a = 1) = (b > 2) OR (c < -3) IS NULL OR -a < b OR NULL OR TRUE AND vip",
        "\"NOT\" IS NOT NULL AND TAGS IN ('b', 'a') AND KEYS STARTSWITH '' AND \"TAGS\" NOT BETWEEN a AND 'z'",
        "-a = -a IS NULL AND a = b AND a NOT CONTAINS 'x' AND (-a) IS NULL",
    ],
)
def test_a_printed_filter_is_read_as_the_same(text):
    condition = parse_sql(text)
    assert parse_sql(print_condition(condition)) == condition
