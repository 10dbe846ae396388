"""The record of a broker group: its stored form, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.cluster.group_record import GroupRecord, GroupState, InvalidGroupRecord, LogPoint

RECORD = GroupRecord(
    3,
    GroupState.SYNC_REPLICATION,
    "a",
    {"a": 1, "b": 2},
    {"c": 3},
    {"d": 4},
    "0123456789abcdef",
    LogPoint(3, 100),
    "why",
    17,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def test_a_record_is_the_same_after_it_was_stored_and_ignores_fields_of_a_later_version():
    stored = json.loads(json.dumps(RECORD.to_value()))
    assert GroupRecord.from_value({**stored, "later": 1}) == RECORD
    assert RECORD.awaited == {"b": 2, "c": 3}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epoch": 0}, "epoch"),
        ({"epoch": True}, "epoch"),
        ({"epoch": 1 << 63}, "epoch"),
        ({"state": "MASTER"}, "state"),
        ({"master": "c"}, "in_sync"),
        ({"master": None}, "master"),
        ({"in_sync": ["a"]}, "in_sync"),
        ({"in_sync": {"a": 1}}, "in_sync"),
        ({"in_sync": {"a": 1, "b": "2"}}, "in_sync.b"),
        ({"joining": {"b": 2}}, "joining"),
        ({"state": "SINGLE_MASTER", "in_sync": {"a": 1}}, "joining"),
        ({"state": "SEMI_SYNC", "in_sync": {"a": 1}, "joining": {}}, "joining"),
        ({"floor": [1]}, "floor"),
        ({"floor": [1, -1]}, "floor"),
    ],
)
def test_a_wrong_field_is_named(changes, named):
    with pytest.raises(InvalidGroupRecord, match=f"^{named}: "):
        GroupRecord.from_value({**RECORD.to_value(), **changes})


@given(st.sampled_from(sorted(RECORD.to_value())), VALUES)
def test_any_value_of_a_field_is_taken_or_refused(name, value):
    try:
        assert GroupRecord.from_value({**RECORD.to_value(), name: value}).fault() is None
    except InvalidGroupRecord as error:
        assert str(error)
