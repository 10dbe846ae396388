"""Names of hidden topics: one per group and topic, and always a name."""

import pytest

from common.dead_letters import is_dead_letter_topic
from common.names import is_name
from common.shared_reads import hidden_topic, is_hidden_topic

LONG = "x" * 249


def test_a_hidden_topic_shows_group_and_topic():
    assert hidden_topic("billing", "orders.eu") == "_kafka.billing.orders.eu"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b.c"), ("a.b", "c")),
        (("a.b", "c"), ("a.b.c", "d")),
        ((LONG, "a"), (LONG, "b")),
        (("a", LONG), ("b", LONG)),
        ((LONG[:-1] + "a", LONG), (LONG[:-1] + "b", LONG)),
    ],
)
def test_no_two_pairs_have_the_same_hidden_topic(one, other):
    first, second = hidden_topic(*one), hidden_topic(*other)
    assert first != second
    for each in (first, second):
        assert is_name(each) and is_hidden_topic(each) and not is_dead_letter_topic(each)
