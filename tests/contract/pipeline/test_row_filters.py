"""Filters pushed down into the reader: the same rows as when Spark alone applies them, and fewer are built."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from common.contract import Delivery, Message, PullResponse, encode_reply
from common.filter.native import NATIVE
from pipeline.reply import deliveries as reference
from pipeline.reply.arrow import record_batch
from pipeline.reply.columns import ALL, NAMES
from pipeline.reply.row_filter import RowFilter
from pipeline.source.pruning import CLOCK_STEP_MS, row_filter, times_around, within_times
from pipeline.source.ranges import OffsetRange, TopicQueue

native = pytest.importorskip("pipeline.reply._deliveries")
pytestmark = pytest.mark.skipif(
    not NATIVE, reason="both forms are compared, and the native one takes native filters only"
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TAGS = st.sampled_from(["", "a", "A", "ab", "b's", 'q"', "TAGS", "ä", "%", "NULL"])
PROPERTIES = st.dictionaries(st.sampled_from(["shop", "amount", "x y"]), st.sampled_from(["", "1", "01", "s1", "true"]))
MESSAGES = st.builds(
    Message,
    topic=st.just("orders"),
    body=st.none() | st.binary(max_size=9),
    key=st.none() | TAGS,
    tag=st.none() | TAGS,
    properties=st.none() | PROPERTIES,
)
MILLISECONDS = st.integers(1_000, 1_006)
DELIVERIES = st.builds(
    Delivery,
    receipt=st.just(b""),
    queue=st.just(0),
    offset=st.integers(0, 99),
    attempt=st.just(0),
    stored_at_ms=MILLISECONDS,
    id=st.just("i"),
    message=MESSAGES,
)
TIMES = st.builds(
    lambda ms, us: EPOCH + timedelta(microseconds=1000 * ms + us), MILLISECONDS, st.sampled_from([0, 1, 999])
)
TEXT_FILTERS = (
    st.builds(
        lambda kind, field, value: kind((field,), value),
        st.sampled_from([EqualTo, StringStartsWith, StringEndsWith, StringContains]),
        st.sampled_from(["tag", "key"]),
        TAGS,
    )
    | st.builds(
        lambda field, values: In((field,), tuple(values)),
        st.sampled_from(["tag", "key"]),
        st.lists(st.none() | TAGS, min_size=1, max_size=3),
    )
    | st.builds(
        lambda kind, field: kind((field,)), st.sampled_from([IsNull, IsNotNull]), st.sampled_from(["tag", "key"])
    )
)
TIME_FILTERS = st.builds(
    lambda kind, value: kind(("stored_at",), value),
    st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
    TIMES,
) | st.builds(lambda values: In(("stored_at",), tuple(values)), st.lists(TIMES, min_size=1, max_size=2))
FILTERS = st.lists(TEXT_FILTERS | st.builds(Not, TEXT_FILTERS) | TIME_FILTERS, max_size=3)
TESTS = {
    EqualTo: lambda value, asked: value == asked,
    GreaterThan: lambda value, asked: value > asked,
    GreaterThanOrEqual: lambda value, asked: value >= asked,
    LessThan: lambda value, asked: value < asked,
    LessThanOrEqual: lambda value, asked: value <= asked,
    StringStartsWith: lambda value, asked: value.startswith(asked),
    StringEndsWith: lambda value, asked: value.endswith(asked),
    StringContains: lambda value, asked: asked in value,
}


def in_spark(one, row):
    """A filter's value by the rules of SQL: True, False or None."""
    if isinstance(one, Not):
        value = in_spark(one.child, row)
        return None if value is None else not value
    value = row[one.attribute[0]]
    if isinstance(one, IsNull | IsNotNull):
        return (value is None) == isinstance(one, IsNull)
    if value is None:
        return None
    if isinstance(one, In):
        return True if value in one.value else None if None in one.value else False
    return TESTS[type(one)](value, one.value)


def frame_of(deliveries):
    return encode_reply("pull", 1, PullResponse(code=0, deliveries=deliveries, ack_results=[]))


def rows_of(read):
    return record_batch(read, NAMES).to_pylist()


@given(st.lists(DELIVERIES, max_size=12), FILTERS)
@example([Delivery(b"", 0, 1, 0, 1_003, "i", Message("orders"))], [Not(EqualTo(("tag",), "a"))])
def test_a_filter_that_is_pushed_leaves_exactly_the_rows_that_spark_would_keep(deliveries, filters):
    frame, rows = frame_of(deliveries), row_filter(filters)
    read = native.read_deliveries(frame, ALL, rows)
    assert read == reference.read_deliveries(frame, ALL, rows)

    all_rows = rows_of(native.read_deliveries(frame, ALL))
    wanted = [row for row in all_rows if all(in_spark(one, row) is True for one in filters)]
    pushed = rows_of(read)
    assert [row for row in pushed if all(in_spark(one, row) is True for one in filters)] == wanted
    if all(is_pushed(one) for one in filters):
        assert pushed == wanted  # nothing is built that Spark would drop
    assert (read.row_count, read.scanned) == (len(pushed), len(deliveries))


def is_pushed(one):
    """A list with NULL is left to Spark, and a list of times is pushed as the least and the greatest of them."""
    inner = one.child if isinstance(one, Not) else one
    return not isinstance(inner, In) or (inner.attribute != ("stored_at",) and None not in inner.value)


@given(
    st.lists(DELIVERIES, max_size=12),
    st.sampled_from(["shop", "amount"]),
    st.sampled_from(["=", "<>"]),
    st.sampled_from(["1", "s1", ""]),
)
def test_a_filter_on_a_property_keeps_the_messages_that_have_it(deliveries, name, sign, value):
    rows = row_filter((), f"{name} {sign} '{value}'")
    read = native.read_deliveries(frame_of(deliveries), ALL, rows)
    assert read == reference.read_deliveries(frame_of(deliveries), ALL, rows)
    properties = [each.message.properties or {} for each in deliveries]
    assert read.row_count == sum(name in each and (each[name] == value) == (sign == "=") for each in properties)


def test_a_row_that_does_not_match_costs_no_value_of_a_column():
    deliveries = [
        Delivery(b"", 0, at, 0, 1_000, "i", Message("orders", b"x" * 1000, tag="ab"[at % 2])) for at in range(100)
    ]
    read = native.read_deliveries(frame_of(deliveries), ALL, RowFilter(("TAGS = 'a'",)))
    assert (read.row_count, read.scanned) == (50, 100)
    assert len(read.columns[NAMES.index("body")][-1]) == 50 * 1000


@given(st.lists(st.integers(-CLOCK_STEP_MS, 3 * CLOCK_STEP_MS), min_size=1, max_size=30), st.data())
def test_the_look_up_of_a_time_loses_no_row_where_a_clock_was_set_back_by_up_to_an_hour(steps, data):
    """The look-up halves a queue, as the engine does, whose times are those of a clock that may be an hour behind."""
    newest, times = 10 * CLOCK_STEP_MS, []
    for step in steps:
        times.append(max(newest + step, newest - CLOCK_STEP_MS))
        newest = max(newest, times[-1])
    wanted = data.draw(st.sampled_from(times)) + data.draw(st.integers(-2, 2))
    for one in (GreaterThanOrEqual, GreaterThan, LessThan, LessThanOrEqual, EqualTo):
        rows = row_filter([one(("stored_at",), EPOCH + timedelta(milliseconds=wanted))])
        queue = TopicQueue("orders", 0)
        since, until = ({queue: halved(times, at)} for at in times_around(rows))
        kept = within_times([OffsetRange("orders", 0, 0, len(times))], since, until)
        offsets = {offset for each in kept for offset in range(each.start, each.end)}
        assert {at for at, ms in enumerate(times) if rows.from_ms <= ms < rows.to_ms} <= offsets


def halved(times, at_ms):
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if times[middle] < at_ms else (low, middle)
    return low
