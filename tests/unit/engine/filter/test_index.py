"""The index answers as every filter asked by itself does, whatever was added, changed and removed before."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from common.filter.expression import read_filter
from common.filter.match import Filter
from common.filter.nodes import Field, FieldSource
from engine.filter.index import CONSTANTS_MAX, FilterIndex
from engine.filter.native import FORM, REFERENCE
from engine.filter.partial import IndexKey
from tests.unit.common.filter.stored import stored

FORMS = [REFERENCE] if FORM is REFERENCE else [FORM, REFERENCE]

names = st.sampled_from(("a", "b", "c"))
texts = st.sampled_from(("x", "y", "z", "1", "2", "1.0"))
numbers = st.sampled_from(("1", "2", "1.0", "-3"))
predicates = st.one_of(
    st.builds("{} = '{}'".format, names, texts),
    st.builds("{} = '{}'".format, names, texts),
    st.builds("{} <> '{}'".format, names, texts),
    st.builds("{} = {}".format, names, numbers),
    st.builds("{} <> {}".format, names, numbers),
    st.builds("{} > {}".format, names, numbers),
    st.builds("{} IN ('{}', '{}')".format, names, texts, texts),
    st.builds("{} NOT IN ({}, {})".format, names, numbers, numbers),
    st.builds("{} IS NULL".format, names),
    st.builds("{} = {}".format, names, names),
    st.builds("-{} < {}".format, names, names),
    st.builds("{} LIKE '{}%'".format, names, texts),
    st.builds("TAGS = '{}'".format, texts),
    st.just("TRUE"),
    st.just("NULL"),
)
filters = st.recursive(
    predicates,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + ") AND (".join(parts) + ")"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + ") OR (".join(parts) + ")"),
        inner.map("NOT ({})".format),
        inner.map("({}) IS NULL".format),
    ),
    max_leaves=6,
)
messages = st.builds(
    lambda properties, tag: stored({name: text for name, text in properties.items() if text is not None}, tag=tag),
    st.fixed_dictionaries({name: st.none() | texts for name in ("a", "b", "c")}),
    st.none() | texts,
)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@settings(max_examples=300, deadline=None)
@given(given_filters=st.lists(filters, max_size=12), given_messages=st.lists(messages, min_size=1, max_size=6))
def test_the_index_answers_as_each_filter_does(form, given_filters, given_messages):
    index = FilterIndex(form)
    formulas = [read_filter("sql:" + text).formula for text in given_filters]
    for number, formula in enumerate(formulas):
        index.add(number, formula)
    for message in given_messages:
        each = [number for number, formula in enumerate(formulas) if Filter(formula).passes(message)]
        assert sorted(index.matches(message)) == each


class Changes(RuleBasedStateMachine):
    """Subscriptions come, change and go; more of them than it takes to be filed anew."""

    @initialize(form=st.sampled_from(FORMS), asked=st.lists(messages, min_size=2, max_size=4))
    def begin(self, form, asked):
        self.index = FilterIndex(form)
        self.filters: dict[int, Filter] = {}
        self.asked = asked

    @rule(texts=st.lists(filters, min_size=1, max_size=8), number=st.integers(0, 20))
    def subscribe(self, texts, number):
        for offset, text in enumerate(texts):
            formula = read_filter("sql:" + text).formula
            self.index.add(number + offset, formula)
            self.filters[number + offset] = Filter(formula)

    @rule(number=st.integers(0, 30))
    def leave(self, number):
        self.index.remove(number)
        self.filters.pop(number, None)

    @invariant()
    def the_answers_are_right(self):
        for message in getattr(self, "asked", ()):
            each = [number for number, one in self.filters.items() if one.passes(message)]
            assert sorted(self.index.matches(message)) == sorted(each)
            assert len(self.index) == len(self.filters)


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def filled(*texts: str) -> FilterIndex:
    index = FilterIndex()
    for number, text in enumerate(texts):
        index.add(number, read_filter(text).formula)
    return index


def property_key(name: str, numeric: bool = False) -> IndexKey:
    return IndexKey(Field(FieldSource.PROPERTY, name), numeric)


def test_the_most_selective_field_is_chosen_and_no_name_is_special():
    texts = [f"region == 'eu' && kind == 'k{number}' && buyer == {number % 3}" for number in range(40)]
    index = filled(*texts)
    assert {index.key_of(number) for number in range(40)} == {property_key("kind")}
    swapped = filled(
        *[text.replace("kind", "x").replace("region", "kind").replace("x ==", "region ==") for text in texts]
    )
    assert swapped.key_of(39) == property_key("region")


def test_numbers_and_tags_are_keys_too():
    index = filled("buyer == 1", "buyer == 2.0", "red || green")
    assert index.key_of(0) == property_key("buyer", numeric=True)
    assert index.key_of(2) == IndexKey(Field(FieldSource.TAG), False)
    assert index.matches(stored({"buyer": "2"}, tag="red")) == [1, 2]


def test_a_necessary_equality_within_nesting_and_not_leaves_nothing_for_other_values():
    index = filled("NOT (a <> 'x' OR NOT (b > 1))", "(a = 'y' AND b > 1) OR (a = 'z' AND b > 2)")
    assert [index.key_of(number) for number in (0, 1)] == [property_key("a")] * 2
    (table,) = index._tables.values()
    assert table.other == table.none == []
    assert index.matches(stored({"a": "z", "b": "3"})) == [1]
    assert index.matches(stored({"a": "x", "b": "2"})) == [0]
    assert index.matches(stored({"b": "9"})) == []


def test_a_filter_that_names_too_many_values_is_evaluated_for_every_message():
    many = ", ".join(f"'{number}'" for number in range(CONSTANTS_MAX + 1))
    index = filled(f"a IN ({many})")
    assert index.key_of(0) is None
    assert index.matches(stored({"a": "7"})) == [0]


def test_a_message_that_cannot_be_walked_is_everybodys():
    assert filled("a = 1", "b = 1").matches(b"\x0b") == [0, 1]


def test_what_leaves_takes_everything_of_its_own_along():
    index = filled("a = 'x' OR b = 1", "c = 'y'", "a IN ('x', 'y') AND c > 3")
    for number in range(3):
        index.remove(number)
    index.remove(7)
    assert len(index) == 0 and index.matches(stored({"a": "x"})) == []
    assert not index._tables and not index._mentions and not index._lookup.tables
