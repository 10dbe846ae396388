"""Rendezvous hashing of queues over broker groups."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.placement import GROUPS_MAX, Placement, topic_hash

NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True), min_size=1, max_size=8, unique=True)
PLACES = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 9_999))


def test_it_is_the_same_in_every_process_and_version():
    """These values are on disk, as it were: another answer would look for messages where they are not."""
    placement = Placement(["group-1", "group-2", "group-3"])
    assert list(placement.homes(topic_hash(b"orders"), 8)) == [1, 2, 0, 1, 1, 1, 1, 1]
    assert list(placement.homes(topic_hash(b"payments"), 8)) == [1, 0, 2, 1, 0, 0, 1, 1]
    assert topic_hash(b"orders") == 0x86F1701917F3769D


@given(NAMES, PLACES, st.randoms())
def test_the_winner_does_not_depend_on_the_order_of_the_names(names, place, chance):
    other = names[:]
    chance.shuffle(other)
    assert names[Placement(names).home(*place)] == other[Placement(other).home(*place)]


@given(NAMES, st.lists(PLACES, max_size=20))
def test_a_group_more_moves_queues_only_to_itself_and_one_less_only_its_own(names, places):
    before, after = Placement(names), Placement([*names, "the-new-one"])
    for place in places:
        old, new = names[before.home(*place)], after.names[after.home(*place)]
        assert new in (old, "the-new-one")


def test_queues_and_topics_spread_evenly():
    placement = Placement([f"group-{number}" for number in range(1, 6)])
    found = Counter()
    for number in range(2_000):
        found.update(placement.homes(topic_hash(b"topic-%d" % number), 8))
    assert all(abs(count / 16_000 - 1 / 5) < 0.01 for count in found.values())
    assert set(placement.homes(topic_hash(b"one"), 10_000)) == set(range(5))


@pytest.mark.parametrize("names", [[], ["a", "a"], [str(number) for number in range(GROUPS_MAX + 1)]])
def test_none_too_many_or_equal_names_are_no_placement(names):
    with pytest.raises(ValueError, match="broker groups"):
        Placement(names)
