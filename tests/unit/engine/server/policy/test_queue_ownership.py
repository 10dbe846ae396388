"""Which queues an engine may put something into by itself."""

import pytest

from common.config import ConfigView
from common.config.memory_store import MemoryConfigStore
from common.dead_letters import queues_of
from common.placement import Placement, topic_hash
from engine.server.policy.queue_ownership import ConfiguredQueueOwnership

NAMES = ["east", "north", "west"]


class Follower:
    """A configuration that is read when the test says so."""

    def __init__(self, *names: str) -> None:
        self.view: ConfigView | None = None
        self.store = MemoryConfigStore()
        for name in names:
            self.store.put("broker_group", name, {"address": "127.0.0.1:1"}, 0)

    def read(self) -> "Follower":
        self.view = ConfigView(self.store)
        return self


@pytest.mark.parametrize("own", NAMES)
def test_among_several_groups_a_queue_of_the_own_one_is_taken(own):
    ownership = ConfiguredQueueOwnership(Follower(*NAMES).read(), own, is_configured=True)
    homes = Placement(NAMES).homes(topic_hash(b"orders"), 12)
    for queue in range(12):
        found = ownership.nearest("orders", queue, 12)
        assert NAMES[homes[found]] == own
        passed = [(queue + step) % 12 for step in range((found - queue) % 12)]
        assert all(NAMES[homes[each]] != own for each in passed)


def test_where_the_configuration_names_no_group_everything_lives_here():
    assert ConfiguredQueueOwnership(Follower().read(), "main", is_configured=True).nearest("orders", 5, 12) == 5
    assert ConfiguredQueueOwnership(Follower(), "main", is_configured=False).nearest("orders", 5, 12) == 5


def test_nothing_lives_here_until_the_configuration_was_read_and_names_the_own_group():
    follower = Follower("others")
    ownership = ConfiguredQueueOwnership(follower, "east", is_configured=True)
    assert ownership.nearest("orders", 5, 12) is None
    follower.read()
    assert ownership.nearest("orders", 5, 12) is None
    follower.store.put("broker_group", "east", {"address": "127.0.0.1:1"}, 0)
    assert ownership.nearest("orders", 0, 12) is not None


def test_a_dead_letter_topic_has_as_many_queues_as_give_each_group_one_of_its_own():
    assert queues_of("_dlq.readers", []) == queues_of("_dlq.readers", ["main"]) == 1
    count = queues_of("_dlq.readers", NAMES)
    homes = Placement(NAMES).homes(topic_hash(b"_dlq.readers"), count)
    assert set(homes) == {0, 1, 2} and len(set(homes[:-1])) == 2
