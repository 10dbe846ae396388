"""Rendezvous hashing of queues over broker groups."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.placement import (
    GROUPS_MAX,
    ID_SLOTS,
    IDS_HASH,
    Placement,
    QueueRange,
    first_queue,
    home_of_id,
    queue_of_id,
    topic_hash,
)

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


SOME = st.lists(st.sampled_from(["a", "b", "c", "d", "gone"]), unique=True).map(tuple)


@given(st.integers(0, 2**64 - 1), st.lists(SOME, min_size=1, max_size=4), st.randoms())
def test_a_placed_topics_queues_are_in_the_groups_of_their_range_and_a_further_range_moves_none(topic, groups, chance):
    names = ["a", "b", "c", "d"]
    ranges = tuple(QueueRange(8 * number, each) for number, each in enumerate(groups))
    for count in range(1, len(ranges) + 1):
        homes = Placement(names, {topic: ranges[:count]}).homes(topic, 8 * count)
        assert homes == Placement(names, {topic: ranges}).homes(topic, 8 * count)
        for queue, home in enumerate(homes):
            wanted = set(groups[queue // 8]) & set(names) or set(names)
            assert names[home] in wanted
    other = names[:]
    chance.shuffle(other)
    shuffled = Placement(other, {topic: ranges}).homes(topic, 8 * len(ranges))
    assert [other[home] for home in shuffled] == [names[home] for home in homes]
    plain = Placement(names)
    assert [plain.home(topic + 1, queue) for queue in range(8)] == list(
        Placement(names, {topic: ranges}).homes(topic + 1, 8)
    )


@given(st.binary(min_size=1, max_size=30), st.integers(0, 31))
def test_an_own_id_goes_to_a_queue_that_takes_messages_at_its_home_where_there_is_one(shown, first):
    placement = Placement(["a", "b", "c"])
    homes, id_homes = placement.homes(77, 32), placement.homes(IDS_HASH, ID_SLOTS)
    queue = queue_of_id(shown, homes, id_homes, first)
    assert first <= queue < 32
    home = home_of_id(shown, id_homes)
    assert homes[queue] == home or home not in homes[first:]


def test_the_first_queue_that_takes_messages_is_that_of_the_last_range():
    placed = {topic_hash(b"orders"): (QueueRange(0, ()), QueueRange(8, ("a",)))}
    assert (first_queue(placed, "orders"), first_queue(placed, "payments")) == (8, 0)


@pytest.mark.parametrize("names", [[], ["a", "a"], [str(number) for number in range(GROUPS_MAX + 1)]])
def test_none_too_many_or_equal_names_are_no_placement(names):
    with pytest.raises(ValueError, match="broker groups"):
        Placement(names)
