"""Pruning by filters: no range is left out that has a matching row."""

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual

from pipeline.source.pruning import pruned
from pipeline.source.ranges import OffsetRange

RANGES = [OffsetRange("a", 0, 0, 20), OffsetRange("a", 1, 5, 15), OffsetRange("b", 0, 10, 30)]
NUMBER = st.integers(-2, 32)
COMPARISONS = {
    EqualTo: lambda row, value: row == value,
    GreaterThan: lambda row, value: row > value,
    GreaterThanOrEqual: lambda row, value: row >= value,
    LessThan: lambda row, value: row < value,
    LessThanOrEqual: lambda row, value: row <= value,
    In: lambda row, value: row in value,
}
FILTERS = st.lists(
    st.builds(
        lambda kind, value: kind(("offset",), value),
        st.sampled_from([each for each in COMPARISONS if each is not In]),
        NUMBER,
    )
    | st.builds(lambda values: In(("offset",), tuple(values)), st.lists(NUMBER, max_size=3))
    | st.builds(lambda value: EqualTo(("queue",), value), st.integers(0, 2))
    | st.builds(lambda values: In(("topic",), tuple(values)), st.lists(st.sampled_from("abc"), max_size=2)),
    max_size=4,
)


def holds(one, row):
    return COMPARISONS[type(one)](row[one.attribute[0]], one.value)


@given(FILTERS)
def test_every_row_for_which_all_filters_hold_is_in_a_range_that_is_kept(filters):
    rows = [
        {"topic": each.topic, "queue": each.queue, "offset": offset}
        for each in RANGES
        for offset in range(each.start, each.end)
    ]
    kept = {
        (each.topic, each.queue, offset) for each in pruned(RANGES, filters) for offset in range(each.start, each.end)
    }
    assert {tuple(row.values()) for row in rows if all(holds(one, row) for one in filters)} <= kept


def test_a_filter_of_another_column_or_kind_leaves_out_nothing():
    assert pruned(RANGES, [EqualTo(("key",), "k"), IsNotNull(("offset",)), GreaterThan(("queue",), 0)]) == RANGES


def test_a_comparison_with_nothing_leaves_out_everything():
    assert pruned(RANGES, [EqualTo(("offset",), None)]) == []
