"""Fence and record of a cut in a topic's entry."""

import pytest

from common.config.definitions import CutRecord, Fence, TopicDefinition
from common.config.errors import InvalidDefinition

FENCE = Fence("shop", "shop.1", 60_000)
CUT = CutRecord("shop", 2, 1_700_000_000_000, "main", "id", (5, 6), (7, 8))


def test_both_are_written_back_as_they_were_read():
    topic = TopicDefinition("orders", fence=FENCE, cut=CUT)
    assert TopicDefinition.from_value("orders", topic.to_value()) == topic
    assert not {"fence", "cut"} & TopicDefinition("orders").to_value().keys()


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("fence", 5, "fence: it is not an object with plan, id and for_ms"),
        ("fence", {"plan": "a", "id": "b", "for_ms": 60_001}, "fence.for_ms: 60,001 is out of range: use 1 to 60,000"),
        ("fence", {"id": "b", "for_ms": 1}, "fence.plan: use 1 to 300 printable ASCII characters"),
        ("cut", [], "cut: it is not an object"),
        ("cut", {**CUT.to_value(), "kafka_ends": 5}, "cut.kafka_ends: the value is not a list"),
    ],
)
def test_a_faulty_one_is_refused_by_field_and_rule(field, value, told):
    with pytest.raises(InvalidDefinition) as refused:
        TopicDefinition.from_value("orders", {field: value})
    assert told in str(refused.value)
