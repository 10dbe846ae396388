"""Reports of brokers: their form on the link, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.cluster.group_record import LogPoint
from common.cluster.reports import BrokerReport, FollowerReport

NUMBERS = st.integers(0, (1 << 63) - 1)
POINTS = st.builds(LogPoint, NUMBERS, NUMBERS)
FOLLOWERS = st.builds(FollowerReport, NUMBERS, NUMBERS, st.booleans(), st.booleans(), NUMBERS)
REPORTS = st.builds(
    BrokerReport, NUMBERS, NUMBERS, st.text(max_size=8), POINTS, POINTS, st.frozensets(NUMBERS, max_size=3),
    st.booleans(), st.booleans(), st.dictionaries(st.text(max_size=5), FOLLOWERS, max_size=3), st.booleans(),
    NUMBERS, NUMBERS,
)  # fmt: skip
REPORT = BrokerReport(7, 3, "1f", LogPoint(2, 100), followers={"b": FollowerReport(8, 5, False, True)})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(REPORTS)
def test_a_report_is_the_same_after_the_link_and_ignores_fields_of_a_later_version(report):
    sent = json.loads(json.dumps({**report.to_value(), "later": 1}))
    assert BrokerReport.from_value(sent) == report


OPTIONAL = {"damaged", "repaired_bytes", "cannot_lead", "id_window_mib"}
"""Fields that an earlier version does not send."""


@pytest.mark.parametrize("name", sorted(REPORT.to_value().keys() - OPTIONAL))
def test_a_report_without_one_of_its_fields_is_refused(name):
    value = REPORT.to_value()
    del value[name]
    with pytest.raises(ValueError, match=name):
        BrokerReport.from_value(value)


def test_a_report_of_an_earlier_version_tells_of_no_damage():
    value = {name: each for name, each in REPORT.to_value().items() if name not in OPTIONAL}
    assert BrokerReport.from_value(value) == REPORT


@pytest.mark.parametrize(
    "changes",
    [
        {"log": [1]}, {"log": [1, 2, 3]}, {"log": 5}, {"synced": None}, {"continues": 7}, {"incarnation": "x"},
        {"version": float("inf")}, {"followers": []}, {"followers": {"b": {}}}, {"followers": {"b": 1}},
        {"version": True}, {"version": 1.0}, {"incarnation": -1}, {"log": "12"}, {"log_id": None}, {"hears_master": 0},
        {"is_settled": "false"}, {"followers": {"b": {**REPORT.to_value()["followers"]["b"], "is_lost": None}}},
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused(changes):
    with pytest.raises(ValueError):
        BrokerReport.from_value({**REPORT.to_value(), **changes})


@given(VALUES)
def test_what_is_no_report_is_refused(value):
    with pytest.raises(ValueError):
        BrokerReport.from_value(value)


@given(st.sampled_from(sorted(REPORT.to_value())), VALUES)
def test_any_value_of_a_field_is_taken_or_refused(name, value):
    try:
        assert isinstance(BrokerReport.from_value({**REPORT.to_value(), name: value}), BrokerReport)
    except ValueError:
        pass
