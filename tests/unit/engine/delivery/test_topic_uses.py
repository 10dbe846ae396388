"""Uses of topics: one bit per topic and period."""

import sys

from engine.delivery import topic_uses
from engine.delivery.topic_uses import TopicUses
from engine.log.types import Topic

FOUND = {"a": Topic(5, "a", 1), "b": Topic(1 << 31, "b", 1)}


def test_a_use_is_known_for_the_period_and_the_next_one():
    uses = TopicUses()
    uses.note([3, 1_023, 1_024, 0xFFFFFFFF])
    for _ in range(2):
        assert [uses.has(number) for number in (3, 4, 1_023, 1_024, 0xFFFFFFFF)] == [True, False, True, True, True]
        taken = list(uses.take())
    assert taken == []
    assert not any(uses.has(number) for number in (3, 1_023, 1_024, 0xFFFFFFFF))


def test_the_uses_of_a_period_are_taken_once():
    uses = TopicUses()
    uses.note([7, 2_000, 7])
    assert list(uses.take()) == [7, 2_000]
    uses.note([8])
    assert list(uses.take()) == [8]


def test_the_topics_of_a_pull_are_looked_up_once_per_period(monkeypatch):
    uses, asked = TopicUses(), []

    def find(name):
        asked.append(name)
        return FOUND.get(name)

    for _ in range(3):
        uses.note_pull(b"key", [("a", 1), ("b", 1), ("missing", 0)], find)
    assert asked == ["a", "b", "missing"] and uses.has(5) and uses.has(1 << 31)
    list(uses.take())
    uses.note_pull(b"key", [("a", 1)], find)
    assert asked[3:] == ["a"]
    monkeypatch.setattr(topic_uses, "KEYS_MAX", 4)
    for number in range(100):
        uses.note_pull(b"%d" % number, [("a", 1)], find)
    assert len(uses._keys) <= 4


def test_a_million_topics_take_little_memory():
    uses = TopicUses()
    uses.note(range(1_000_000))
    assert sum(map(sys.getsizeof, uses._now.values())) + sys.getsizeof(uses._now) < 250_000
