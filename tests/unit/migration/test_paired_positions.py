"""Positions between two sides that proxies write to, over sides in memory: nothing is skipped, whatever their order."""

import random

import pytest

from migration.errors import PlanRefused
from migration.paired_positions import PairedMessage, PairedSide, paired_offset


class Side(PairedSide):
    """A queue of names; `young` is the offset of the first recent one. A string with a source was copied from there."""

    def __init__(self, names, first=0, young=None, sources=()) -> None:
        self.names, self.first, self.young, self.sources = [*names], first, young, dict(sources)
        self.read = 0

    def bounds(self):
        return self.first, len(self.names)

    def messages(self, first, end):
        for offset in range(first, end):
            self.read += 1
            yield PairedMessage(self.names[offset].encode(), offset, self.sources.get(offset))

    def recent(self, end):
        return end if self.young is None else min(end, self.young)


def found(source, at, target, **options):
    return paired_offset(source, at, target, "topic orders queue 0", pause=lambda seconds: None, waits_s=0.0, **options)


def test_with_one_order_on_both_sides_the_position_is_exact():
    names = [f"m{number}" for number in range(100)]
    place = found(Side(names), 40, Side(["old"] * 7 + names))
    assert (place.offset, place.end, place.again) == (47, 107, 0)
    assert found(Side(names), 100, Side(names)) == (100, 100, 0), "everything was read"


def test_what_several_proxies_have_interleaved_is_read_again_and_counted():
    kafka, engine = Side("abcdef"), Side("adbcfe")
    assert found(kafka, 3, engine) == (1, 6, 2), "d is the first that was not read; b and c come again"


def test_the_latest_of_equal_messages_are_the_ones_that_were_not_read():
    assert found(Side("xaxbx"), 4, Side("xaxbx")) == (4, 5, 0)
    assert found(Side("xaxbx"), 2, Side("xaxbx")) == (2, 5, 0)


def test_a_recent_message_that_is_not_on_the_side_of_the_group_yet_was_not_read():
    assert found(Side("abc"), 3, Side("abxc", young=2)) == (2, 4, 1)
    assert found(Side("abcd"), 3, Side("abcd", young=0)) == (3, 4, 0)


def test_a_message_that_was_not_read_and_does_not_come_is_refused_with_the_way_out():
    with pytest.raises(
        PlanRefused, match="topic orders queue 0: 1 messages that the group has not read are on one side only"
    ):
        found(Side("abcd"), 2, Side("abc"))


def test_a_message_that_comes_meanwhile_is_waited_for():
    engine = Side("abc")
    place = paired_offset(Side("abcd"), 2, engine, "here", pause=lambda seconds: engine.names.append("d"), waits_s=60.0)
    assert place == (2, 3, 0)


def test_the_search_ends_at_records_that_were_copied_below_the_position():
    names = [f"m{number}" for number in range(50_000)]
    engine = Side(names, sources={offset: offset for offset in range(49_000)})
    with pytest.raises(PlanRefused):
        found(Side([*names, "only here"]), 49_500, engine)
    assert engine.read < 8_000


@pytest.mark.parametrize("seed", range(200))
def test_nothing_is_skipped_whatever_the_order_and_what_is_on_its_way(seed):
    chance = random.Random(seed)
    kafka, engine, left = [], [], {}
    for number in range(chance.randrange(1, 120)):
        proxy = chance.randrange(3)
        left.setdefault(proxy, []).append(f"m{number % 40}.{chance.randrange(2)}")
        for name in left[proxy] if chance.random() < 0.5 else ():
            kafka.append(name)
        left[proxy] = left[proxy] if not kafka or left[proxy][-1:] != kafka[-1:] else []
    engine = [*kafka]
    for _ in range(40):  # proxies interleave: neighbours change places
        if len(engine) > 1:
            at = chance.randrange(len(engine) - 1)
            engine[at], engine[at + 1] = engine[at + 1], engine[at]
    coming = [f"new{number}" for number in range(chance.randrange(4))]
    at = chance.randrange(len(kafka) + 1)
    target = Side([*engine, *coming], young=max(0, len(engine) - 20))
    place = found(Side(kafka), at, target)
    unread = sorted(kafka[at:] + coming)
    gets = target.names[place.offset :]
    for name in set(unread):
        assert gets.count(name) >= unread.count(name), f"{name} is skipped"
    assert place.again == len(gets) - len(unread)
