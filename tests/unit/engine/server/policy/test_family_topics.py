"""Which topics the engine takes for those of a family: only what a readable definition says."""

from types import SimpleNamespace

import pytest

from common.config import ConfigView
from common.config.memory_store import MemoryConfigStore
from common.dead_letters import dead_letter_topic
from engine.server.policy.family_topics import ConfiguredFamilyTopics

FAMILY = {"queues": 2, "durability": "memory", "id_window_ms": 5_000}


@pytest.fixture
def store():
    made = MemoryConfigStore()
    made.put("family", "m.*", FAMILY, 0)
    return made


@pytest.fixture
def follower(store):
    made = SimpleNamespace(view=ConfigView(store))
    yield made
    made.view.close()


def test_a_topic_that_only_its_family_defines_has_the_familys_window(follower):
    families = ConfiguredFamilyTopics(follower)
    assert families.id_window_ms("m.a") == 5_000
    assert families.id_window_ms("other") is None


def test_a_definition_of_its_own_readable_or_not_hides_the_family(store, follower):
    families = ConfiguredFamilyTopics(follower)
    store.put("topic", "m.own", FAMILY, 0)
    store.put("topic", "m.later", {**FAMILY, "durability": "on three continents"}, 0)
    assert families.id_window_ms("m.own") is None
    assert families.id_window_ms("m.later") is None
    assert families.id_window_ms("m.b") == 5_000


def test_dead_letters_and_what_is_not_read_yet_belong_to_no_family(store, follower):
    store.put("family", "*", FAMILY, 0)
    families = ConfiguredFamilyTopics(follower)
    assert families.id_window_ms("any") == 5_000
    assert families.id_window_ms(dead_letter_topic("group")) is None
    assert ConfiguredFamilyTopics(SimpleNamespace(view=None)).id_window_ms("m.a") is None
