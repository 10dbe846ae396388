"""The compiled evaluator and its twin give equal answers, over odd numbers and odd messages too."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.filter import match as match_pure
from common.filter.expression import read_filter
from common.filter.formula import formula_of
from common.filter.nodes import CompareNumber, Field, FieldSource, Relation
from common.filter.numbers import parse_number
from common.filter.parser import parse_sql
from tests.unit.common.filter.stored import STRING, properties_field, stored
from tests.unit.common.wire.frames import I64, LIST, field, i64, list_of, struct_of, text

_match = pytest.importorskip("common.filter._match")


def both(formula, message: bytes) -> bool:
    native, twin = _match.Filter(formula), match_pure.Filter(formula)
    assert native.cost == twin.cost
    answer = native.passes(message)
    assert answer == twin.passes(message)
    return answer


number_texts = st.one_of(
    st.integers(-(1 << 65), 1 << 65).map(str),
    st.floats(allow_nan=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=5).map(str),
    st.from_regex(r"[+-]?[0-9]{0,22}\.?[0-9]{0,22}([eE][+-]?[0-9]{1,4})?", fullmatch=True),
    st.text("0123456789.eE+- x", max_size=70),
)
literals = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=2000, deadline=None)
@given(number_texts, literals, st.sampled_from(Relation))
def test_numbers_are_read_and_compared_alike(held, literal, relation):
    formula = formula_of(CompareNumber(Field(FieldSource.PROPERTY, "a"), relation, literal))
    both(formula, stored({"a": held}))
    number = parse_number(held.encode())
    if number is not None and abs(number) != float("inf"):
        same = formula_of(CompareNumber(Field(FieldSource.PROPERTY, "a"), Relation.EQUAL, number))
        assert both(same, stored({"a": held}))


@settings(max_examples=500, deadline=None)
@given(number_texts, number_texts, st.sampled_from(("-a < b", "-a = -b", "a >= -b", "a < b", "a <> b")))
def test_two_properties_are_compared_alike(a, b, expression):
    both(read_filter(expression).formula, stored({"a": a, "b": b}))


@settings(max_examples=1000, deadline=None)
@given(st.text("aé€%_", max_size=12), st.text("aé€%_", max_size=8))
def test_patterns_are_matched_alike(held, pattern):
    both(formula_of(parse_sql(f"a LIKE '{pattern}'")), stored({"a": held}))


FORMULA = read_filter("a = '1' AND b IS NULL AND TAGS = 't' AND KEYS = 'k'").formula


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ([], True),
        (
            [field(STRING, 4, text(b"x")), field(STRING, 4, text(b"t"))],
            True,
        ),  # the last one counts, as for any reader of Thrift
        ([properties_field(("a", "1"), ("b", "2")), properties_field(("a", "1"))], True),
        ([properties_field(("a", "1")), properties_field(("b", "2"))], False),
        ([properties_field(("a", "2"), ("a", "1"))], True),
        ([field(LIST, 99, list_of(I64, i64(1))), field(I64, 7, i64(5))], True),
        ([field(STRING, 5, text(b"no map"))], True),
    ],
)
def test_fields_may_come_in_any_order_and_twice(fields, answer):
    before = struct_of(properties_field(("a", "1")), field(STRING, 4, text(b"t")), field(STRING, 3, text(b"k")))[:-1]
    assert both(FORMULA, before + struct_of(*fields)) == answer


def test_a_message_that_cannot_be_walked_passes():
    whole = stored({"a": "2", "b": "3"}, tag="x", key="y", body=b"body")
    assert not both(FORMULA, whole)
    for size in range(len(whole)):
        assert both(FORMULA, whole[:size])


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_any_bytes_have_one_answer(data):
    whole = bytearray(stored({"a": "1", "bb": "2"}, tag="t", key="k"))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    both(FORMULA, bytes(whole))


def test_many_properties_are_found_in_one_table():
    filter_text = " AND ".join(f"p{number} = '{number}'" for number in range(300))
    properties = {f"p{number}": str(number) for number in range(300)}
    formula = read_filter(filter_text).formula
    assert both(formula, stored(properties))
    assert not both(formula, stored({**properties, "p299": "x"}))
