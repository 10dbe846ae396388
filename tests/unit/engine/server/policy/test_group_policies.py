"""Group policies of the engine: what is not known is not served, and never taken for "no definition"."""

from types import SimpleNamespace

import pytest

from common.config import ConfigView
from common.config.memory_store import MemoryConfigStore
from engine.delivery.policy import DEFAULT, KEY, begins_later
from engine.errors import GroupUnreadError
from engine.link.codes import OK
from engine.link.pull import AT_TIME, EARLIEST, LATEST
from engine.server.policy.group_policies import ConfiguredPolicies
from tests.unit.engine.delivery._world import World, offsets

GOOD = {"order": "key", "paused": True, "filter": "country = 'IT'"}
LATER = {**GOOD, "order": "session"}


@pytest.fixture
def store():
    return MemoryConfigStore()


@pytest.fixture
def policies(store):
    follower = SimpleNamespace(view=ConfigView(store))
    yield ConfiguredPolicies(follower, is_configured=True)
    follower.view.close()


def test_a_definition_of_a_later_version_leaves_the_last_known_one_in_force(store, policies):
    revision = store.put("group", "readers", GOOD, 0)
    before = policies.of("readers")
    assert (before.order, before.paused, before.filters) == (KEY, True, {"": "country = 'IT'"})
    store.put("group", "readers", LATER, revision)
    assert policies.of("readers") == before


def test_a_definition_that_was_never_readable_is_not_taken_for_none(store, policies):
    store.put("group", "readers", LATER, 0)
    policy = policies.of("readers")
    assert policy.paused and policy.filters is None and "later version" in policy.unread
    assert policies.of("others") == DEFAULT


def test_no_group_is_served_or_begins_anywhere_before_the_configuration_is_read_but_acknowledgements_count(store):
    world = World()
    world.store(world.topic(), 3)
    (piece,) = world.give(most=1)
    follower = SimpleNamespace(view=None)
    world.policies = ConfiguredPolicies(follower, is_configured=True)
    world.delivery.write_progress()
    world.restart()
    with pytest.raises(GroupUnreadError, match='group "g": the engine has not read'):
        world.give()
    assert world.pull(acks=[piece.ack()]) == ([OK], [])
    with pytest.raises(GroupUnreadError):
        world.give(group="new", start=AT_TIME)
    assert world.delivery.group("new").topics == {}
    follower.view = ConfigView(store)
    assert offsets(world.give()) == [1, 2]
    follower.view.close()


@pytest.mark.parametrize(
    ("value", "gets_all"),
    [
        ({"start": "earliest"}, True),
        ({"start": "latest"}, False),
        ({"start": "latest", "start_at_ms": 5_000}, True),
        ({"start": "latest", "start_at_ms": 5_001}, False),
        ({"start": "time", "start_at_ms": 4_999}, True),
    ],
)
def test_whether_a_group_begins_with_all_of_a_topic_that_comes_back_follows_its_definition(
    store, policies, value, gets_all
):
    store.put("group", "readers", value, 0)
    assert policies.of("readers").begins_with_all(5_000) == gets_all
    assert policies.of("others").begins_with_all(5_000)


def test_a_hidden_topic_has_the_filter_of_the_topic_whose_messages_it_holds(store, policies):
    filters = {"orders": "tag = 'a'", "pay": "tag = 'b'"}
    store.put("group", "readers", {"topic_filters": filters, "filter": "tag = 'c'"}, 0)
    assert policies.of("readers").filters == {**filters, "": "tag = 'c'"}
    entry = {"group": "readers", "topic": "orders", "cluster": "main"}
    store.put("shared_read", "_kafka.readers.orders", entry, 0)
    wanted = {**filters, "": "tag = 'c'", "_kafka.readers.orders": "tag = 'a'"}
    assert policies.of("readers").filters == wanted


@pytest.mark.parametrize("start", [LATEST, AT_TIME])
def test_a_group_begins_with_the_first_message_of_its_hidden_topics_wherever_it_begins_elsewhere(start):
    assert begins_later("orders", start) and not begins_later("_kafka.readers.orders", start)
    assert not begins_later("orders", EARLIEST)


def test_groups_that_begin_at_latest_are_found_among_the_definitions_that_have_changed(store, policies):
    store.put("group", "old", {"start": "latest", "start_at_ms": 7, "topics": ["a"]}, 0)
    store.put("group", "timed", {"start": "time", "start_at_ms": 8}, 0)
    store.put("group", "first", {"start": "latest"}, 0)
    seen, parts = policies.latest_groups(None)
    assert [pair for part in parts for pair in part] == [("old", 7)]
    assert list(policies.latest_groups(seen)[1]) == []
    store.put("group", "new", {"start": "latest", "start_at_ms": 9}, 0)
    assert ("new", 9) in [pair for part in policies.latest_groups(seen)[1] for pair in part]
    assert policies.is_current and policies.of("new").is_from_now and not policies.of("timed").is_from_now


def test_without_contact_to_the_store_or_before_it_is_read_changes_do_not_come_into_sight(store, policies):
    store.set_available(False)
    assert not policies.is_current
    unread = ConfiguredPolicies(SimpleNamespace(view=None), is_configured=True)
    assert not unread.is_current and list(unread.latest_groups(None)[1]) == []
